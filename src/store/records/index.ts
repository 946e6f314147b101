/** What is stored, as records; reading a history from them; no backend. */
export * from "./awaited.js";
export * from "./claims.js";
export * from "./contract.js";
export * from "./history.js";
export * from "./listing.js";
export * from "./ranges.js";
export * from "./records.js";
export * from "./shared-rows.js";
export * from "./tenant-rows.js";
export * from "./waiting.js";
