/** What a model is asked and answers, and what a protocol makes of it. */
export * from "./cache.js";
export * from "./call-settings.js";
export * from "./model.js";
export * from "./retry-policy.js";
