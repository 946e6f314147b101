/** Calls a session's plugins from its worker, and reads what they answer. */
export * from "./hook-table.js";
export * from "./inline-link.js";
export * from "./plugin-link.js";
export * from "./read-answers.js";
export * from "./session-hooks.js";
export * from "./worker-link.js";
