/** Work that goes on beside sessions' turns: run, stored, told of. */
export * from "./agent-tasks.js";
export * from "./task-kinds.js";
export * from "./task-services.js";
export * from "./task-tools.js";
export * from "./tasks.js";
