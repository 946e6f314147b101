/** Which session is on which worker. */
export * from "./directory.js";
export * from "./runtime.js";
