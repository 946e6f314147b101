/** What a host asks for, checked and completed. */
export * from "./options.js";
export * from "./permissions.js";
