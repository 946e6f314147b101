import { definePlugin, deny } from "troupe/plugin";

/** What a typical guard does before a tool call: counts, and lets it pass. */
export default definePlugin({
  id: "bench.guard",
  version: "1.0.0",
  state: () => ({ calls: 0 }),
  hooks: {
    beforeToolCall({ call, state }) {
      return ++state.calls > Number.MAX_SAFE_INTEGER ? deny("budget_exhausted", call.toolName) : undefined;
    },
  },
});
