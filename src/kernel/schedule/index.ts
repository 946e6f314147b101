/** When something is asked of a session again, planned without a clock of its own. */
export * from "./schedule.js";
export * from "./schedule-request.js";
