/** What is stored, as records; reading a history from them; no backend. */
export * from "./contract.js";
export * from "./history.js";
export * from "./listing.js";
export * from "./records.js";
