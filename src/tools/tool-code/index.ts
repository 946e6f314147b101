/** Runs a tool's own code on the thread it is on. */
export * from "./plain-result.js";
export * from "./run-here.js";
export * from "./tool-notes.js";
