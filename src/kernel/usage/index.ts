/** Tokens, what they cost, and what may be spent. */

export type { SessionBudget } from "./budget.js";
export * from "./reservations.js";
export * from "./tenant-budget.js";
export * from "./usage.js";
