/** The scripted model. */
export * from "./scripted.js";
