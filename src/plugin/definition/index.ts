/** A plugin as it is defined, registered and loaded. */
export * from "./contributions.js";
export * from "./define.js";
export * from "./load.js";
