import { definePlugin } from "troupe/plugin";

/** One of many plugins with the four hooks of the reference turn, which look and have nothing to say. */
export default definePlugin({
  id: `bench.four-hooks-${new URL(import.meta.url).searchParams.get("n") ?? 0}`,
  version: "1.0.0",
  hooks: {
    beforeTurn: () => undefined,
    beforeToolCall: () => undefined,
    afterToolCall: () => undefined,
    afterTurn: () => undefined,
  },
});
