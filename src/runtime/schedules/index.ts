/** What is asked of sessions at certain times. */
export * from "./schedule-view.js";
export * from "./schedules.js";
export * from "./wake-tool.js";
