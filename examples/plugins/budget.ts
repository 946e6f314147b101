import { definePlugin, deny } from "troupe/plugin";
import { z } from "zod";

/**
 * Bounds how many tools a session may call, in one turn and in its life. What is over the budget is denied, not
 * aborted: the model reads why and can still answer with what it has.
 *
 * The counts are this session's state. They are stored with every turn and a fork starts with its parent's, so nobody
 * gets a new budget by forking.
 */
export default definePlugin({
  id: "example.budget",
  version: "1.0.0",
  options: z.object({
    perTurn: z.number().int().min(0).default(10),
    perSession: z.number().int().min(0).default(100),
  }),
  state: () => ({ inTurn: 0, inSession: 0, lastCallId: "" }),
  hooks: {
    // Not by the turn's index: a turn that is refused gives its index to the next one.
    beforeTurn({ state }) {
      state.inTurn = 0;
    },
    beforeToolCall({ call, state, options }) {
      // When a later plugin replaces the arguments, this hook looks at the same call once more: it is still one call.
      if (call.callId === state.lastCallId) return;
      if (state.inSession >= options.perSession) {
        return deny("session_budget_exhausted", `This conversation may call ${options.perSession} tools, and did.`);
      }
      if (state.inTurn >= options.perTurn) {
        return deny("turn_budget_exhausted", `One turn may call ${options.perTurn} tools. Answer with what you have.`);
      }
      state.lastCallId = call.callId;
      state.inTurn++;
      state.inSession++;
    },
  },
});
