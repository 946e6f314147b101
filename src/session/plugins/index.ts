/** Calls a session's plugins from its worker, and reads what they answer. */
export * from "./failure-policy.js";
export * from "./hook-table.js";
export * from "./hosts/index.js";
export * from "./inline-link.js";
export * from "./plugin-link.js";
export * from "./read-answers.js";
export * from "./read-directives.js";
export * from "./session-hooks.js";
