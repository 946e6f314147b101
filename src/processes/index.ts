/**
 * The child processes of a runtime, on a thread of their own: their outputs are read there, and neither a plugin's thread
 * nor a session worker takes them along when it dies.
 */
export { KeptOutput } from "./kept-output.js";
export { type ProcessThread, processThread } from "./serve.js";
