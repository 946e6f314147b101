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
export * from "./definition/contributions.js";
export * from "./definition/define.js";
export { definePlugin, type Plugin, type PluginDefinition } from "./definition/define.js";
export { type LoadedPlugin, loadPlugin, type PluginManifest, parseAny } from "./definition/load.js";
export * from "./host/directives.js";
export * from "./host/host.js";
export * from "./host/snapshot.js";
export * from "./kinds/hooks.js";
export * from "./kinds/operations.js";
export * from "./kinds/protocol.js";
export { compileSchema, schemaIssues, trustSchemas, usableSchemas, validateArgs } from "./schema/json-schema.js";
export * from "./schema/schema.js";
export { PluginOptions } from "./schema/schema.js";
export type { PluginTool } from "./tool/tool.js";
export * from "./tool/tool.js";
export * from "./tool/tool-answer.js";
