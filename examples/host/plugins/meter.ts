import { definePlugin } from "troupe/plugin";

/** Counts each session's turns and tokens, tells the model in the prompt, and brings the tool that reads them. */
export default definePlugin({
  id: "meter",
  version: "1.0.0",
  state: () => ({ turns: 0, tokens: 0 }),
  hooks: {
    promptContributor({ state }) {
      return { slot: "environment", title: "Usage", content: `${state.turns} turns, ${state.tokens} tokens so far.` };
    },
    afterTurn({ turn, state }) {
      state.turns++;
      state.tokens += turn.usage.inputTokens + turn.usage.outputTokens;
    },
  },
  tools: {
    usage: {
      description: "How many turns and tokens this conversation has used so far.",
      inputSchema: { type: "object", properties: {}, additionalProperties: false },
      execute: (_args, { state }) => ({ turns: state.turns, tokens: state.tokens }),
    },
  },
});
