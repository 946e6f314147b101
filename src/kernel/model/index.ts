/** What a model is asked and answers, and what a protocol makes of it. */
export * from "./model.js";
