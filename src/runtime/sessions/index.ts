/** Sessions as a host holds them, and what they ask of each other. */
export * from "./observe-options.js";
export * from "./relay.js";
export * from "./session-handle.js";
