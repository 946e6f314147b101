/** What a host does beside running turns: moving sessions, deleting, exporting, backing up. */
export * from "./moving.js";
export * from "./upkeep.js";
