/** What a session is: its life, history, inputs and settings. Never runs a turn. */
export * from "./agents.js";
export * from "./completions.js";
export * from "./delivered-input.js";
export * from "./session.js";
export * from "./session-graph.js";
export * from "./session-history.js";
export * from "./session-inputs.js";
export * from "./session-life.js";
export * from "./session-settings.js";
export * from "./tenant-spending.js";
export * from "./token-counts.js";
export * from "./waiting-calls.js";
