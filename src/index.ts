export {
  type Activity,
  type Json,
  type JsonObject,
  type Message,
  type ToolCall,
  type ToolOutput,
  type ToolRecord,
  TroupeError,
  type TurnIssue,
  type TurnOutcome,
  type TurnResult,
  type TurnSummary,
  type Usage,
} from "./kernel/index.js";
export { type Model, type ModelSource, type Script, type ScriptStep, scriptedModel } from "./model/index.js";
export { defineTool, type OperationSpec, type ToolContext, type ToolDefinition } from "./plugin/index.js";
export {
  createTroupe,
  type ForkOptions,
  type OperationOptions,
  type Permissions,
  type PluginEntry,
  type PoolToolEntry,
  type Session,
  type Troupe,
  type TroupeOptions,
  type TroupeStats,
  type Turn,
} from "./runtime/index.js";
export type { Authority, OperationReceipt, SessionInfo, SessionState } from "./session/index.js";
export type { StoreOptions } from "./store/index.js";
export type { PhaseStats } from "./trace/index.js";
