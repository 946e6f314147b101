/** What a session has watched without a model: how it is asked for, and what is told of it. */
export * from "./gathering.js";
export * from "./monitor.js";
export * from "./monitor-request.js";
