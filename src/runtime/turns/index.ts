/** The turns hosts and sessions asked for, until they end. */
export * from "./cancelling.js";
export * from "./child-turns.js";
export * from "./output.js";
export * from "./turn-options.js";
export * from "./turns.js";
