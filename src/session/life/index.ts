/** Opening, mailbox, parking and ending of one session. */
export { type SessionSnapshot, snapshotOf, treeMessage } from "./fork.js";
export type { Inspector } from "./life-actor.js";
export { adoptSession, checkTenant, openSession, refreshTools, renameFor } from "./open-session.js";
export { compactSession, configureSession, extendSession } from "./requests.js";
export { SessionActor, type SessionActorOptions } from "./session-actor.js";
