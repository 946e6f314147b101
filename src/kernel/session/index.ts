/** A session as data: its head, configuration, authority, agent, and how one is asked for. */
export * from "./agent.js";
export * from "./agent-names.js";
export * from "./create-session.js";
export * from "./head.js";
export * from "./identity.js";
