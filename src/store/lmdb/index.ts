/** The embedded store. */
export * from "./backend.js";
export * from "./rescue/verify.js";
