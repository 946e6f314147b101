/** A session's side of the store: its head, its components, one write at a time. */
export * from "./blobs.js";
export * from "./components.js";
export * from "./receipts.js";
export * from "./repeated-parts.js";
export * from "./session-rows.js";
export * from "./stored-session.js";
export * from "./turn-keys.js";
