/** Calling a model: attempts, pauses, what is kept of a failure. */
export * from "./pause.js";
