/** A session on its own, as a file or bytes, and back. */
export * from "./export-json.js";
export * from "./exported.js";
export * from "./import.js";
export * from "./session-parts.js";
export * from "./whole-files.js";
