/** Goes on with less of a long conversation: asks who sums it up, and opens the frame that begins with what they say. */
export * from "./compact-turn.js";
export * from "./compactors.js";
