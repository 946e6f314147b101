/** Runs a tool's own code on the thread it is on. */
export * from "./run-here.js";
