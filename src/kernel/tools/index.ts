/** Tools as the model and the turn see them: specs, calls, outcomes, a session's edits. */
export * from "./approval.js";
export * from "./tool-content.js";
export * from "./tools.js";
export * from "./words.js";
