import { definePlugin } from "troupe/plugin";

const id = new URL(import.meta.url).searchParams.get("id") ?? "bench.counter";

/** Counts its session's turns, and says how many there were. */
export default definePlugin({
  id,
  version: "1.0.0",
  state: () => ({ turns: 0 }),
  hooks: {
    beforeTurn({ state }) {
      state.turns++;
    },
    afterTurn: () => undefined,
  },
  queries: {
    [`${id}.turns`]: {
      description: "Turns counted",
      input: { type: "object" },
      run: (_input, { state }) => state.turns,
    },
  },
});
