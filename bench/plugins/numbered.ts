import { definePlugin } from "troupe/plugin";

/** One of many plugins: the module's address says which, so that each is loaded for itself. */
export default definePlugin({
  id: `bench.numbered-${new URL(import.meta.url).searchParams.get("n") ?? 0}`,
  version: "1.0.0",
  state: () => ({ turns: 0 }),
  hooks: {
    beforeTurn({ state }) {
      state.turns++;
    },
  },
});
