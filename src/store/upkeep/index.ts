/** Long work on a store between its commits, or while nobody has it open. */
export * from "./maintenance.js";
export * from "./progress.js";
export * from "./prune.js";
