/** Which session is on which worker. */
export * from "./directory.js";
export * from "./placement.js";
export * from "./runtime.js";
