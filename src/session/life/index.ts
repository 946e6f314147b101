/** Opening, mailbox, parking and ending of one session. */

export { refreshTools } from "./equipment.js";
export { type SessionSnapshot, snapshotOf, treeMessage } from "./fork.js";
export type { Inspector } from "./life-actor.js";
export { adoptSession, checkTenant, openSession, renameFor } from "./open-session.js";
export { compactSession, configureSession, extendSession } from "./requests.js";
export { SessionActor, type SessionActorOptions } from "./session-actor.js";
export { agentMismatch, checkSamePlugins, setAgent } from "./session-agent.js";
