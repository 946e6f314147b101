/** The kinds of things a plugin has: hooks, operations, a protocol. */
export * from "./hooks.js";
export * from "./operations.js";
export * from "./protocol.js";
