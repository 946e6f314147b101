import { definePlugin } from "troupe/plugin";
import { z } from "zod";

/** Says which events of the outside world there are; who sends them is the host's business. */
export default definePlugin({
  id: "example.mailbox",
  version: "1.0.0",
  triggers: [
    {
      resourceType: "mailbox",
      alias: "mail",
      event: "received",
      payloadSchema: z.object({ from: z.string(), subject: z.string() }),
    },
  ],
});
