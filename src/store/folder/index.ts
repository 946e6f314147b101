/** Who has a store's folder open. */
export * from "./lock.js";
