export { acquireStoreLock, type StoreLock } from "./folder/lock.js";
export { openLmdb, openLmdbReader } from "./lmdb/backend.js";
export type { Finding } from "./lmdb/rescue/finding.js";
export { type RepairedSession, type RepairReport, repairStore } from "./lmdb/rescue/repair.js";
export { type SessionReport, type VerifyReport, verifyStore } from "./lmdb/rescue/verify.js";
export { openMemory } from "./memory/memory-store.js";
export {
  type AnswerKind,
  APPROVAL,
  answerKeysOf,
  awaitedIn,
  rowsOfCall,
  unansweredIn,
  waitingRowKey,
} from "./records/awaited.js";
export type { BackendAtOnce, ReaderFromAfar, StoreBackend, StoreOptions } from "./records/contract.js";
export { type MessageNode, readHistory, readTail } from "./records/history.js";
export {
  checkListRequest,
  type ListRequest,
  type SessionPage,
  type SessionWorkState,
  type StoredSession,
} from "./records/listing.js";
export { sealEnvelope, storeLost } from "./records/records.js";
export { countOf, SHARED_COUNTS, SHARED_STATE, sharedKeyOf, sharedRowKey } from "./records/shared-rows.js";
export { TENANT_BUDGETS, TENANT_SPENDING, tenantRowKey } from "./records/tenant-rows.js";
export {
  checkPendingRequest,
  listWaiting,
  type PendingPage,
  type PendingRequest,
  pageOfWaiting,
} from "./records/waiting.js";
export { StoreClient } from "./thread/client.js";
export { StoreServer, type StoreStats } from "./thread/serve.js";
export { type LeftWork, type StoreService, storeService } from "./thread/service.js";
export {
  OCCURRENCES,
  OPENINGS,
  type OpenedSession,
  SCHEDULES,
  SUBSCRIPTIONS,
  TASK_STEPS,
  TASKS,
} from "./thread/store-calls.js";
export { readWhole } from "./transfer/whole-files.js";
export type { ExportOptions, ImportedSession, ImportOptions, PruneOptions } from "./upkeep/maintenance.js";
export {
  exportSession,
  importSession,
  listSessions,
  type MigrationReport,
  migrateStore,
  pruneStore,
} from "./upkeep/maintenance.js";
export type { StoreProgress, WorkOptions } from "./upkeep/progress.js";
export { type PrunePolicy, type PruneReport, Pruning, type SweepCount } from "./upkeep/prune.js";
