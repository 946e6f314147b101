/** One piece of a turn's work: a model call, tool calls, code, a checkpoint. Sees a narrow `TurnSession`, never the session class. */
export * from "./admission.js";
export * from "./issues.js";
export * from "./turn-checkpoints.js";
export * from "./turn-code.js";
export * from "./turn-context.js";
export * from "./turn-model.js";
export * from "./turn-scope.js";
export * from "./turn-session.js";
export * from "./turn-tools.js";
