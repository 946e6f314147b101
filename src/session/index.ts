export type { HostRelay, TraceEvent } from "./host-relay.js";
export { joinEvents, type ObservationGap, type Observed, type ObservedEvent } from "./observed.js";
export type { PluginWorkerService } from "./plugin-protocol.js";
export { servePlugin } from "./plugin-thread.js";
export type {
  ActivityNote,
  CancelNote,
  ConfigReceipt,
  HostToolCall,
  MessageRange,
  ObservedNote,
  OperationReceipt,
  OrderedMethod,
  PluginSetup,
  RelayCall,
  Remnant,
  ResidencyLimits,
  SessionInfo,
  SessionMaking,
  SessionPluginOptions,
  SessionState,
  SessionSurface,
  SessionWorkerService,
  SessionWorkerSetup,
  SessionWorkerStats,
  TreeMessage,
  TurnCall,
  TurnExtras,
  UsageNote,
} from "./protocol.js";
export { serveSessions } from "./serve-sessions.js";
export { STANDARD_PROTOCOL_ID } from "./standard-protocol.js";
export { type TurnReply, unpackResult } from "./turn-reply.js";
