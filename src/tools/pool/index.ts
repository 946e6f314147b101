/** Tools on the threads of the Piscina pool. */
export * from "./pool.js";
export * from "./schema-checks.js";
export * from "./tool-pools.js";
