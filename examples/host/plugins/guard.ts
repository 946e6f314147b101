import { definePlugin, deny } from "troupe/plugin";
import { z } from "zod";

/** Lets small computations through and denies large ones; the model is told why. */
export default definePlugin({
  id: "guard",
  version: "1.0.0",
  options: z.object({ largest: z.number().int() }),
  hooks: {
    beforeToolCall({ call, options }) {
      if (call.toolName !== "primes") return;
      const { below } = z.object({ below: z.number() }).parse(call.args);
      if (below > options.largest) return deny("too_expensive", `Ask for primes below ${options.largest} at most.`);
    },
  },
});
