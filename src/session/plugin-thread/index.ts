/** Runs one plugin's code, on a thread of its own or inline in a session worker. */
export * from "./plugin-calls.js";
export * from "./plugin-instance.js";
export * from "./serve-plugin.js";
