export { StoreClient, type StoreClientOptions } from "./client.js";
export type { StoreBackend, StoreOptions, StoreReader, WriteCounts } from "./contract.js";
export { sealEnvelope } from "./envelope.js";
export { exportSession } from "./export-file.js";
export { exportSessionJson } from "./export-json.js";
export type { ExportedSession } from "./exported.js";
export {
  type HistoryTail,
  isOnPath,
  type MessageNode,
  outlinesOf,
  readHistory,
  readTail,
  readTree,
} from "./history.js";
export { importWrites, readExport } from "./import.js";
export { type LmdbReader, openLmdb, openLmdbReader } from "./lmdb.js";
export { acquireStoreLock, type StoreLock } from "./lock.js";
export type { ExportRequest, ImportedSession, ImportRequest } from "./maintenance.js";
export { openMemory } from "./memory.js";
export type { DeleteRequest, LoadedSession, StoreCalls, StoreService, StoreStats } from "./protocol.js";
export { type PrunePolicy, type PruneReport, Pruning, type SweepCount } from "./prune.js";
export { type RepairedSession, type RepairReport, repairStore } from "./repair.js";
export { StoreServer } from "./serve.js";
export { openBackend, storeService } from "./service.js";
export { type Finding, type SessionReport, type VerifyReport, verifyStore } from "./verify.js";
