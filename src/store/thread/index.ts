/** The store worker, and how other threads reach it. */
export * from "./client.js";
export * from "./serve.js";
export * from "./service.js";
export * from "./store-calls.js";
