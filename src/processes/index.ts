/**
 * The child processes of a runtime and what it watches, on a thread of their own: outputs and files are read there, and
 * neither a plugin's thread nor a session worker takes them along when it dies.
 */
export { KeptOutput } from "./kept-output.js";
export { type ProcessThread, processThread } from "./serve.js";
export type { WatchTerms } from "./watch.js";
export type { WatchRequest } from "./watches.js";
