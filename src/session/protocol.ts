/** What the main thread and a session worker say to each other: types, and which call goes by which route. */
export type {
  HostRelay,
  RelayAnswers,
  RelayCall,
  TraceEvent,
  TraceSink,
} from "./host-relay.js";
export type {
  ActivityNote,
  CancelNote,
  FullNote,
  HostToolCall,
  ObservedNote,
  TraceNote,
  TurnCall,
  TurnExtras,
  UsageNote,
} from "./main-lane.js";
export {
  type AnswerOf,
  type ArgumentOf,
  SESSION_CALLS,
  type SessionMethod,
  type SessionWorkerService,
  type ToldBy,
} from "./session-calls.js";
export {
  type ConfigReceipt,
  type MessageRange,
  NO_PLUGIN_OPTIONS,
  type OperationReceipt,
  type Remnant,
  type SessionInfo,
  type SessionMaking,
  type SessionPluginOptions,
  type SessionState,
  type SessionSurface,
  type TreeMessage,
} from "./session-facts.js";
export type {
  PluginLane,
  PluginSetup,
  ResidencyLimits,
  SessionWorkerSetup,
  SessionWorkerStats,
} from "./worker-setup.js";
