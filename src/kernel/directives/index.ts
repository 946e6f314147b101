/** What plugins ask for, and how it is folded. */
export * from "./directives.js";
