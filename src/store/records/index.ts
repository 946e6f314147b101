/** What is stored, as records; reading a history from them; no backend. */
export * from "./contract.js";
export * from "./errors.js";
export * from "./history.js";
export * from "./listing.js";
export * from "./records.js";
export * from "./segment.js";
export * from "./writes.js";
