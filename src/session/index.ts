export { joinDeltas } from "./active-turns.js";
export { serveSessions } from "./host.js";
export type { PluginWorkerService } from "./plugin-protocol.js";
export { servePlugin } from "./plugin-thread.js";
export type {
  ActivityNote,
  Authority,
  CancelNote,
  HostToolCall,
  OperationReceipt,
  PluginSetup,
  SessionInfo,
  SessionState,
  SessionWorkerService,
  SessionWorkerSetup,
  SessionWorkerStats,
  TurnCall,
} from "./protocol.js";
