export { nativeToolStep, TroupeError, usageReport } from "../kernel/index.js";
export * from "./definition/contributions.js";
export * from "./definition/define.js";
export { definePlugin, type Plugin, type PluginDefinition } from "./definition/define.js";
export { type LoadedPlugin, loadPlugin, type PluginManifest, parseAny, pluginLoadTimeout } from "./definition/load.js";
export * from "./host/directives.js";
export * from "./host/host.js";
export type { ProcessMethod, TriggerMethod } from "./host/nested.js";
export type { MonitorHost, ProcessActs, ProcessReads } from "./host/outside.js";
export * from "./host/shared.js";
export * from "./host/snapshot.js";
export * from "./host/tasks.js";
export * from "./host/triggers.js";
export * from "./kinds/hooks.js";
export * from "./kinds/jobs.js";
export * from "./kinds/operations.js";
export * from "./kinds/protocol.js";
export { isCostlySchema } from "./schema/costly-schema.js";
export {
  compileSchema,
  loadChecker,
  schemaIssues,
  trustSchemas,
  usableSchemas,
  validateArgs,
} from "./schema/json-schema.js";
export * from "./schema/schema.js";
export { PluginOptions } from "./schema/schema.js";
export type { PluginTool } from "./tool/tool.js";
export * from "./tool/tool.js";
export * from "./tool/tool-answer.js";
