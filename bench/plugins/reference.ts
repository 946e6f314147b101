import { definePlugin, type PluginTool } from "troupe/plugin";
import { lookUp, lookUpInput } from "../measuring/reference-turn.js";

const tool: PluginTool<typeof lookUpInput, unknown, unknown> = {
  description: "Looks a city up.",
  inputSchema: lookUpInput,
  execute: lookUp,
};

/** The four hooks of the reference turn, and its tool. The hooks look and have nothing to say. */
export default definePlugin({
  id: "bench.reference",
  version: "1.0.0",
  hooks: {
    beforeTurn: () => undefined,
    beforeToolCall: () => undefined,
    afterToolCall: () => undefined,
    afterTurn: () => undefined,
  },
  tools: { look_up: tool },
});
