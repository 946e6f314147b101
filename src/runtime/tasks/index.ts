/** Work that goes on beside sessions' turns: run, stored, told of. */
export * from "./task-kinds.js";
