/** Tokens, what they cost, and what may be spent. */
export * from "./usage.js";
