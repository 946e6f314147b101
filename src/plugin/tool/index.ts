/** Tools as their authors write them. */
export * from "./tool.js";
export * from "./tool-answer.js";
