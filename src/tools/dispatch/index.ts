/** Finds a tool, checks its arguments and runs it where it lives, within its limits. */
export * from "./dispatch.js";
export * from "./registry.js";
export * from "./slots.js";
