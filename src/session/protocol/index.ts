/** A session's LLM protocol, and the tool catalog it makes its preamble of. */
export * from "./catalog.js";
export * from "./prefix-watch.js";
export * from "./session-protocol.js";
export * from "./standard-protocol.js";
