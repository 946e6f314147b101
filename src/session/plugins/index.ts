/** Calls a session's plugins from its worker, and reads what they answer. */
export * from "./asking-call.js";
export * from "./inline-link.js";
export * from "./plugin-link.js";
export * from "./read-answers.js";
export * from "./read-protocol.js";
export * from "./session-hooks.js";
export * from "./surface.js";
export * from "./worker-link.js";
