/** The turns hosts and sessions asked for, until they end. */
export * from "./child-turns.js";
export * from "./turn-options.js";
export * from "./turns.js";
