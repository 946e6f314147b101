/** What a host asks for, checked and completed. */
export * from "./agent-entry.js";
export type { BuiltInBodies, BuiltInTool, TaskArgs, WakeArgs } from "./built-in-tools.js";
export { checkCallOptions } from "./option-checks.js";
export * from "./options.js";
export * from "./permissions.js";
export * from "./plugin-entry.js";
export { packageRoot } from "./readable.js";
export type { JournalOptions, SecretsOf, TroupeOptions } from "./troupe-options.js";
export * from "./turn-limit.js";
