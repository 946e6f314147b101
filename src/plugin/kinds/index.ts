/** The kinds of things a plugin has: hooks, operations, jobs, a protocol. */
export * from "./hooks.js";
export * from "./jobs.js";
export * from "./operations.js";
export * from "./protocol.js";
