/** Tokens, what they cost, and what may be spent. */
export * from "./ledger.js";
export * from "./usage.js";
