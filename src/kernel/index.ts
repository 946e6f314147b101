export * from "./errors.js";
export * from "./ids.js";
export * from "./json.js";
export * from "./messages.js";
export * from "./model.js";
export * from "./state.js";
export * from "./tools.js";
export * from "./usage.js";
