export { threadHeap } from "./heap.js";
export { joinEvents, type ObservationGap, type Observed, type ObservedEvent } from "./observed.js";
export type { PluginWorkerService } from "./plugin-protocol.js";
export { servePlugin } from "./plugin-thread.js";
export {
  type ActivityNote,
  type AnswerOf,
  type ArgumentOf,
  type CancelNote,
  type ConfigReceipt,
  type HostToolCall,
  type MessageRange,
  type ObservedNote,
  type OperationReceipt,
  type PluginSetup,
  type RelayAnswers,
  type RelayCall,
  type Remnant,
  type ResidencyLimits,
  SESSION_CALLS,
  type SessionInfo,
  type SessionMaking,
  type SessionMethod,
  type SessionPluginOptions,
  type SessionState,
  type SessionSurface,
  type SessionWorkerService,
  type SessionWorkerSetup,
  type SessionWorkerStats,
  type ToldBy,
  type TraceEvent,
  type TreeMessage,
  type TurnCall,
  type TurnExtras,
  type UsageNote,
} from "./protocol.js";
export { serveSessions } from "./serve-sessions.js";
export { STANDARD_PROTOCOL_ID } from "./standard-protocol.js";
export { type TurnReply, unpackResult } from "./turn-reply.js";
