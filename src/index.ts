export {
  type Activity,
  type AppendNode,
  type AppendRequest,
  type AppendResult,
  type Authority,
  type CatalogOverlay,
  type Json,
  type JsonObject,
  type Message,
  type SessionConfig,
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
export {
  type Model,
  type ModelSource,
  type Script,
  type ScriptDirectAnswer,
  type ScriptStep,
  scriptedModel,
} from "./model/index.js";
export {
  defineTool,
  type OperationSpec,
  type ProtocolTurnOptions,
  type SessionView,
  type ToolContext,
  type ToolDefinition,
  type TriggerSpec,
} from "./plugin/index.js";
export {
  createTroupe,
  type ForkOptions,
  type OperationOptions,
  type Permissions,
  type PluginEntry,
  PluginStack,
  type PoolToolEntry,
  type Session,
  type SessionOptions,
  type Troupe,
  type TroupeOptions,
  type TroupeStats,
  type Turn,
  type TurnOptions,
} from "./runtime/index.js";
export type {
  ConfigReceipt,
  OperationReceipt,
  SessionInfo,
  SessionState,
  SessionSurface,
  TraceEvent,
} from "./session/index.js";
export type { StoreOptions } from "./store/index.js";
export type { PhaseStats } from "./trace/index.js";
