/** A session as data: its head, configuration, authority, and how one is asked for. */
export * from "./create-session.js";
export * from "./head.js";
export * from "./identity.js";
