/** Many sessions on one thread: which are in memory, what they share, who watches them. */
export * from "./heap.js";
export * from "./serve-sessions.js";
