export { StoreClient, type StoreClientOptions } from "./client.js";
export type {
  CommitReceipt,
  CommitResult,
  StoreBackend,
  StoreOptions,
  StoreReader,
  WriteCounts,
} from "./contract.js";
export { readHistory } from "./history.js";
export { type LmdbReader, openLmdb, openLmdbReader } from "./lmdb.js";
export { acquireStoreLock, type StoreLock } from "./lock.js";
export { openMemory } from "./memory.js";
export { type BatchPlan, type Decision, decide, planBatch, writeFailed } from "./plan.js";
export type { LoadedSession, StoreCalls, StoreService, StoreStats } from "./protocol.js";
export { StoreServer } from "./serve.js";
export { openBackend, storeService } from "./service.js";
