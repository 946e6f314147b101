import { definePlugin } from "troupe/plugin";
import { z } from "zod";

/** Keeps the beginning of a conversation, as much as its options say, and puts one message in place of the rest. */
export default definePlugin({
  id: "bench.sums-up",
  version: "1.0.0",
  options: z.object({ keep: z.number() }),
  hooks: {
    contextCompactor: ({ messageCount, options: { keep } }) => ({
      keep,
      initialNodes: [{ kind: "message", message: { role: "user", text: `What ${messageCount} messages came to.` } }],
    }),
  },
});
