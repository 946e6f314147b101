/** Who watches sessions, and what has been measured. */
export * from "./inspections.js";
export * from "./observers.js";
export * from "./stats.js";
