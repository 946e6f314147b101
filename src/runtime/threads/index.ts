/** Every thread of a runtime: started, watched, replaced and ended in one place. */
export type { RegisteredAgent } from "./agent-registry.js";
export type { JobServer } from "./job-host.js";
export * from "./session-worker.js";
export * from "./store-worker.js";
export * from "./thread-wiring.js";
export * from "./threads.js";
export { workerEntry } from "./worker-entry.js";
