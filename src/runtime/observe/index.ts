/** Who watches sessions, and what has been measured. */
export * from "./observers.js";
export * from "./stats.js";
