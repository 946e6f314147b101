/** Runs a tool's own code on the thread it is on. */
export * from "./describe.js";
export * from "./result.js";
export * from "./run-here.js";
