/** Messages, the graph they form, and the segments they are stored in. */
export * from "./history.js";
