/** Many sessions on one thread: which are in memory, what they share, who watches them. */
export { threadHeap } from "./residency.js";
export { serveSessions } from "./serve-sessions.js";
