/** Calling a model: attempts, pauses, what is kept of a failure. */
export * from "./call-model.js";
export * from "./presentable.js";
