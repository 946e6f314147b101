/** What the main thread and a session worker say to each other: types and the call table, no behaviour. */
export * from "./main-lane.js";
export * from "./observed.js";
export * from "./session-calls.js";
export * from "./worker-setup.js";
