/** Answers `context.host`, and does at once what directives ask to be done at once. */
export * from "./direct-completion.js";
export * from "./host-services.js";
export * from "./immediate-directives.js";
