export { acquireStoreLock, type StoreLock } from "./folder/lock.js";
export { openLmdb, openLmdbReader } from "./lmdb/backend.js";
export { type RepairedSession, type RepairReport, repairStore } from "./lmdb/rescue/repair.js";
export { type Finding, type SessionReport, type VerifyReport, verifyStore } from "./lmdb/rescue/verify.js";
export { openMemory } from "./memory/memory-store.js";
export type { StoreBackend, StoreOptions } from "./records/contract.js";
export { type MessageNode, readHistory, readTail } from "./records/history.js";
export type { ListRequest, SessionPage, StoredSession } from "./records/listing.js";
export { sealEnvelope } from "./records/records.js";
export { storeLost } from "./records/writes.js";
export { StoreClient } from "./thread/client.js";
export { StoreServer, type StoreService, type StoreStats, storeService } from "./thread/serve.js";
export { readWhole } from "./transfer/whole-files.js";
export {
  type ExportOptions,
  exportSession,
  type ImportOptions,
  importSession,
  listSessions,
  type PruneOptions,
  pruneStore,
} from "./upkeep/closed-store.js";
export type { ImportedSession } from "./upkeep/maintenance.js";
export type { StoreProgress, WorkOptions } from "./upkeep/progress.js";
export { type PrunePolicy, type PruneReport, Pruning, type SweepCount } from "./upkeep/prune.js";
