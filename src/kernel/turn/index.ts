/** The turn machine: a pure function from state and event to state and effects. */
export * from "./activity.js";
export * from "./turn.js";
export * from "./turn-input.js";
export * from "./turn-state.js";
export * from "./turn-steps.js";
