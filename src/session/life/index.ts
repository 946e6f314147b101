/** Opening, mailbox, parking and ending of one session. */
export * from "./active-turns.js";
export * from "./fork-point.js";
export type { Inspector } from "./life-actor.js";
export * from "./open-session.js";
export * from "./session-actor.js";
