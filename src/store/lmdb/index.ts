/** The embedded store. */
export * from "./backend.js";
export { type MigrationProgress, migratingFolder } from "./file/migration.js";
export * from "./rescue/verify.js";
