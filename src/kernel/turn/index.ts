/** The turn machine: a pure function from state and event to state and effects. */

export * from "./activity.js";
export * from "./activity-buffer.js";
export * from "./checkpoint.js";
export * from "./outcome.js";
export * from "./pending-inputs.js";
export * from "./turn.js";
export * from "./turn-effects.js";
export * from "./turn-input.js";
export * from "./turn-state.js";
