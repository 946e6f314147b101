/** The tools of one session: registered, edited, overlaid, searched. */
export * from "./session-tools.js";
export * from "./tool-edits.js";
export * from "./tool-view.js";
