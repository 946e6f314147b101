import { loopTurn, systemClock } from "../../async/index.js";
import type { StoreWrite, WriteReceipt, WriteResult } from "../../kernel/index.js";
import { acquireStoreLock } from "../folder/index.js";
import { checkThere, openLmdb } from "../lmdb/index.js";
import { type ListRequest, listStored, type SessionPage, type StoreBackend } from "../records/index.js";
import { readWhole } from "../transfer/index.js";
import { type ExportRequest, type ImportedSession, Maintenance } from "./maintenance.js";
import type { WorkOptions } from "./progress.js";
import type { PrunePolicy, PruneReport } from "./prune.js";

/** How a session is exported. */
export interface ExportOptions extends WorkOptions, Pick<ExportRequest, "format"> {}

export interface ImportOptions extends WorkOptions {
  /** The id it gets here; its own by default. */
  readonly id?: string;
}

export type PruneOptions = Omit<PrunePolicy, "running"> & WorkOptions;

/**
 * The sessions of a store that nobody has open, page by page. With a runtime, ask it: `troupe.listSessions()`.
 *
 * @example
 * const { sessions, next } = await listSessions("./data", { limit: 20 });
 */
export async function listSessions(path: string, page: ListRequest = {}): Promise<SessionPage> {
  return withStore(path, (backend) => listStored(backend, page));
}

/**
 * A session of a store that nobody has open, as bytes; with a `file`, there.
 *
 * @example
 * await exportSession("./data", "chat-42", { file: "chat-42.json", format: "json" });
 */
export async function exportSession(
  path: string,
  id: string,
  options: ExportOptions & { readonly file: string },
): Promise<undefined>;
export async function exportSession(path: string, id: string, options?: ExportOptions): Promise<Uint8Array>;
export async function exportSession(
  path: string,
  id: string,
  { file, format = "msgpack", ...work }: ExportOptions & { readonly file?: string } = {},
): Promise<Uint8Array | undefined> {
  return withStore(path, (_, maintenance) => maintenance.exportSession({ sessionId: id, file, format }, work));
}

/**
 * Makes an exported session one of a store that nobody has open; a store that is not there is made. Refused with
 * `session_exists`, `session_deleted`, `export_damaged` or `export_version_unknown`, and then nothing is written.
 *
 * @example
 * const { sessionId } = await importSession("./data", "chat-42.json", { id: "chat-43" });
 */
export async function importSession(
  path: string,
  source: string | URL | Uint8Array,
  { id: sessionId, ...work }: ImportOptions = {},
): Promise<ImportedSession> {
  const bytes = await readWhole(source);
  return withStore(path, (_, maintenance) => maintenance.importSession({ bytes, sessionId }, work), { create: true });
}

/**
 * Removes from a store that nobody has open what no session leads to. There is nobody who might still need it, so it
 * goes at once unless `graceMs` says otherwise.
 *
 * @example
 * const { segments, components } = await pruneStore("./data", { dryRun: true });
 */
export async function pruneStore(
  path: string,
  { signal, onProgress, graceMs = 0, ...policy }: PruneOptions = {},
): Promise<PruneReport> {
  return withStore(path, (_, maintenance) => maintenance.prune({ graceMs, ...policy }, { signal, onProgress }));
}

async function withStore<T>(
  path: string,
  use: (backend: StoreBackend, maintenance: Maintenance) => T | Promise<T>,
  { create = false }: { readonly create?: boolean } = {},
): Promise<T> {
  // The host's own thread works on a store that no runtime has: so nobody else could bring the clock.
  const clock = systemClock;
  if (!create) checkThere(path);
  const lock = acquireStoreLock(path, clock);
  try {
    const backend = openLmdb(path);
    const maintenance = new Maintenance({
      backend,
      clock,
      write: async (write) => written(backend, write),
      pause: () => loopTurn(clock),
    });
    try {
      return await use(backend, maintenance);
    } finally {
      backend.close();
    }
  } finally {
    lock.release();
  }
}

function written(backend: StoreBackend, write: StoreWrite): WriteReceipt {
  // One answer per write.
  const [result] = backend.write([write]) as [WriteResult];
  if (!result.ok) throw result.error;
  return result.receipt;
}
