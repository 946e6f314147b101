/** What is to be written: commits, journal rows, planned without a store. */
export * from "./commit.js";
export * from "./journal.js";
export * from "./rows.js";
export * from "./write-plan.js";
export * from "./writes.js";
