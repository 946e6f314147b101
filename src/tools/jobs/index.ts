/** Runs jobs of plugins on the thread it is on: their steps, their sleep, what they ask of the host. */
export * from "./job-calls.js";
export * from "./job-run.js";
export * from "./serve-jobs.js";
