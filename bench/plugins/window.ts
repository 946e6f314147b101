import { definePlugin } from "troupe/plugin";

/** The messages a session is given whose name begins with `windowed`: what fits a model, however long it has been going on. */
export const WINDOW = 40;

export default definePlugin({
  id: "bench.window",
  version: "1.0.0",
  hooks: {
    turnContextTransform({ sessionId, messageCount }) {
      if (!sessionId.startsWith("windowed")) return undefined;
      return { messages: [{ from: Math.max(0, messageCount - WINDOW), to: messageCount }] };
    },
  },
});
