/** The embedded store. */
export * from "./backend.js";
export type { MigrationProgress } from "./file/layout-version.js";
export { migratingFolder } from "./file/migration.js";
export * from "./rescue/verify.js";
