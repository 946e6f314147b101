import { definePlugin, type PluginTool } from "troupe/plugin";
import { lookUp, lookUpInput } from "../measuring/reference-turn.js";

interface Counts {
  turns: number;
  calls: number;
}

const tool: PluginTool<typeof lookUpInput, Counts, unknown> = {
  description: "Looks a city up.",
  inputSchema: lookUpInput,
  execute: lookUp,
};

/** As `reference.ts`, with state that changes in every turn and is captured and stored with it. */
export default definePlugin({
  id: "bench.reference",
  version: "1.0.0",
  state: (): Counts => ({ turns: 0, calls: 0 }),
  hooks: {
    beforeTurn({ state }) {
      state.turns++;
    },
    beforeToolCall({ state }) {
      state.calls++;
    },
    afterToolCall: () => undefined,
    afterTurn: () => undefined,
  },
  tools: { look_up: tool },
});
