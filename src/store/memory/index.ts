/** The store that ends with its process. */
export * from "./memory-store.js";
