import { definePlugin, nativeToolStep } from "../../plugin/index.js";

export const STANDARD_PROTOCOL_ID = "troupe.standard";

/** Native tool calling: the provider is told the tools, its tool calls are made, an answer without any ends the turn. */
export const standardProtocol = definePlugin({
  id: STANDARD_PROTOCOL_ID,
  version: "1.0.0",
  protocol: {
    session: {},
    driver: {
      readsState: false,
      buildPreamble: ({ tools }) => ({
        toolSpecs: tools,
        executionPrompt: "",
        promptContributions: [],
        syncExecutionEnvironment: false,
        interpret: nativeToolStep,
      }),
    },
  },
});
