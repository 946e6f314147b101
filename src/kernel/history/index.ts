/** Messages, the graph they form, and the segments they are stored in. */
export * from "./attachments.js";
export * from "./check-parts.js";
export * from "./history.js";
export * from "./parts.js";
export * from "./unstored.js";
