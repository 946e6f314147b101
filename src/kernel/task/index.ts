/** Work that goes on beside a session's turns, planned without a store or a clock of its own. */
export * from "./task.js";
export * from "./task-request.js";
