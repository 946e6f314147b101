export type {
  AbortTurn,
  Activity,
  AfterToolDirective,
  AfterTurnDirective,
  AppendNode,
  AppendRequest,
  AppendResult,
  Authority,
  BeforeToolDirective,
  CodeResult,
  ContextPiece,
  CreateSession,
  Directive,
  EmitEvents,
  EmitTrace,
  EnqueuedMessage,
  EnqueueMessages,
  Json,
  JsonObject,
  Ledger,
  LedgerEntry,
  Message,
  ModelResponse,
  PluginEvent,
  PreparedContext,
  PromptContribution,
  PromptSlot,
  ProtocolStep,
  ReplaceToolArgs,
  SessionConfig,
  SessionCreateRequest,
  ShortCircuitTool,
  SubagentContext,
  ToolAvailability,
  ToolCall,
  ToolControl,
  ToolOutput,
  ToolSpec,
  ToolState,
  TurnDirective,
  TurnSummary,
  Usage,
  UsageReport,
} from "../kernel/index.js";
export { nativeToolStep, TroupeError, usageReport } from "../kernel/index.js";
export {
  type AnyHook,
  type AnyPluginTool,
  ContributionSet,
  duplicateOperation,
  duplicateSingleton,
  pluginInvalid,
} from "./contributions.js";
export { definePlugin, type Plugin, type PluginDefinition } from "./define.js";
export {
  abortTurn,
  createSession,
  deny,
  emitEvents,
  emitTrace,
  enqueueMessages,
  replaceToolArgs,
  shortCircuitTool,
} from "./directives.js";
export * from "./extensions.js";
export * from "./hooks.js";
export * from "./host.js";
export { compileSchema, schemaIssues, validateArgs } from "./json-schema.js";
export { type LoadedPlugin, loadPlugin, type PluginManifest, parseAny } from "./load.js";
export * from "./operations.js";
export { PluginOptions } from "./plugin-options.js";
export type { PluginTool } from "./plugin-tool.js";
export * from "./protocol.js";
export * from "./registrar.js";
export * from "./schema.js";
export {
  type PluginRevision,
  type SnapshotEntries,
  sameMajor,
  snapshotFingerprint,
  snapshotIsCurrent,
} from "./snapshot.js";
export * from "./specs.js";
export * from "./tool.js";
export * from "./tool-answer.js";
