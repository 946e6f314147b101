/** Tools as their authors write them. */
export * from "./plugin-tool.js";
export * from "./tool.js";
