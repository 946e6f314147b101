/** The system prompt, and which messages a model is given. */
export * from "./compaction.js";
export * from "./prompt.js";
export * from "./window.js";
