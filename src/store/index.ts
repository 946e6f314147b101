export { StoreClient, type StoreClientOptions } from "./client.js";
export type { StoreBackend, StoreOptions, StoreReader, WriteCounts } from "./contract.js";
export { sealEnvelope } from "./envelope.js";
export {
  type HistoryTail,
  isOnPath,
  type MessageNode,
  outlinesOf,
  readHistory,
  readTail,
  readTailInSlices,
  readTree,
} from "./history.js";
export type { ListRequest, SessionPage, StoredSession } from "./listing.js";
export { type LmdbReader, openLmdb, openLmdbReader } from "./lmdb/backend.js";
export { type RepairedSession, type RepairReport, repairStore } from "./lmdb/repair.js";
export { type Finding, type SessionReport, type VerifyReport, verifyStore } from "./lmdb/verify.js";
export { acquireStoreLock, type StoreLock } from "./lock.js";
export { storeLost } from "./lost.js";
export type { ExportRequest, ImportedSession, ImportRequest } from "./maintenance.js";
export { openMemory } from "./memory.js";
export {
  type ExportOptions,
  exportSession,
  type ImportOptions,
  importSession,
  listSessions,
  type PruneOptions,
  pruneStore,
} from "./offline.js";
export type { DeleteRequest, StoreCalls, StoreService, StoreStats } from "./protocol.js";
export { type PrunePolicy, type PruneReport, Pruning, type SweepCount } from "./prune.js";
export { StoreServer } from "./serve.js";
export { openBackend, storeService } from "./service.js";
export { sessionFile } from "./transfer/export-file.js";
export { sessionJson } from "./transfer/export-json.js";
export type { ExportedSession } from "./transfer/exported.js";
export { importWrites, readExport } from "./transfer/import.js";
export { readWhole } from "./transfer/whole-files.js";
export type { StoreProgress, Watched, WorkOptions } from "./work.js";
