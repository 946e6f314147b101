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
  readTree,
} from "./history.js";
export { type LmdbReader, openLmdb, openLmdbReader } from "./lmdb.js";
export { acquireStoreLock, type StoreLock } from "./lock.js";
export { openMemory } from "./memory.js";
export type { LoadedSession, StoreCalls, StoreService, StoreStats } from "./protocol.js";
export { StoreServer } from "./serve.js";
export { openBackend, storeService } from "./service.js";
