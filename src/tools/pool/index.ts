/** Tools on the threads of the Piscina pool. */
export * from "./pool.js";
