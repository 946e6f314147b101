export type {
  AbortTurn,
  AfterToolDirective,
  AfterTurnDirective,
  BeforeToolDirective,
  Directive,
  EmitEvents,
  EnqueuedMessage,
  EnqueueMessages,
  Json,
  JsonObject,
  ModelResponse,
  PluginEvent,
  PromptContribution,
  PromptSlot,
  ReplaceToolArgs,
  ShortCircuitTool,
  ToolCall,
  ToolOutput,
  TurnDirective,
  TurnSummary,
} from "../kernel/index.js";
export { TroupeError } from "../kernel/index.js";
export { definePlugin, type PluginDefinition, type PluginTool } from "./define.js";
export { abortTurn, deny, emitEvents, enqueueMessages, replaceToolArgs, shortCircuitTool } from "./directives.js";
export {
  type CatalogContribution,
  HOOK_KINDS,
  type Hook,
  type HookContext,
  type HookFacts,
  type HookKind,
  type HookName,
  type HookResults,
  type Hooks,
  type MatchedHook,
  matchesTool,
  type ResponseTransform,
  SINGLETON_KINDS,
  type StreamEnd,
  type StreamTransform,
  type TurnFacts,
} from "./hooks.js";
export { compileSchema, schemaIssues, validateArgs } from "./json-schema.js";
export {
  type AnyHook,
  type AnyPluginTool,
  duplicateOperation,
  type LoadedPlugin,
  loadPlugin,
  type PluginManifest,
  parseAny,
} from "./load.js";
export * from "./operations.js";
export * from "./schema.js";
export {
  type PluginRevision,
  type SnapshotEntries,
  sameMajor,
  snapshotFingerprint,
  snapshotIsCurrent,
} from "./snapshot.js";
export * from "./tool.js";
