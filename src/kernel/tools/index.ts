/** Tools as the model and the turn see them: specs, calls, outcomes, a session's edits. */
export * from "./tools.js";
