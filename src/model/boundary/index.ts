/** What a model is to the runtime: requests, events, scripts, errors. */
export * from "./errors.js";
export * from "./hidden-values.js";
export * from "./model.js";
export * from "./script.js";
