/** What a plugin may ask of the runtime, and what it may tell it. */
export * from "./extensions.js";
export * from "./host.js";
