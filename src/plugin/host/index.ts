/** What a plugin may ask of the runtime, and what it may tell it. */
export * from "./directives.js";
export * from "./host.js";
export type { ProcessMethod, TriggerMethod } from "./nested.js";
export type { MonitorHost, ProcessActs, ProcessReads } from "./outside.js";
export * from "./shared.js";
export * from "./snapshot.js";
export * from "./tasks.js";
export * from "./triggers.js";
