/** Runs the code of a group of plugins, on a plugin host or inline in a session worker. */
export { ANSWER_LIMITS, unfitAnswer } from "./bounded-answers.js";
export { confineThread } from "./confine-thread.js";
export * from "./floating.js";
export * from "./plugin-calls.js";
export * from "./plugin-instance.js";
export { payloadProblem } from "./plugin-operations.js";
export * from "./serve-plugin.js";
export {
  isSharedKey,
  type SharedAnswer,
  type SharedRow,
  sharedStateInvalid,
  sharedUnavailable,
} from "./shared-state.js";
export { StateBoardReader } from "./state-board.js";
