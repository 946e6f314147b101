import { type Clock, loopTurn, Serial, systemClock } from "../../async/index.js";
import {
  checkSessionId,
  invalidOptions,
  type SessionBudget,
  type StoreWrite,
  TroupeError,
  type WriteReceipt,
} from "../../kernel/index.js";
import { acquireStoreLock } from "../folder/index.js";
import { checkThere, migratingFolder, openLmdb } from "../lmdb/index.js";
import { type ListRequest, listStored, type SessionPage, type StoreBackend } from "../records/index.js";
import {
  fillFolder,
  importing,
  readingExport,
  readSession,
  readWhole,
  sessionFile,
  sessionJson,
  writeWhole,
} from "../transfer/index.js";
import { type Pause, pauseOf, type WorkOptions } from "./progress.js";
import { type Alone, type PrunePolicy, type PruneReport, Pruning, type Suspects, written } from "./prune.js";

export interface ExportRequest {
  readonly sessionId: string;
  /** Where to; absent: the bytes are the answer. */
  readonly file?: string | undefined;
  /** `json` is for reading; both can be imported. Default `msgpack`. */
  readonly format?: "msgpack" | "json";
}

export interface ImportRequest {
  readonly bytes: Uint8Array;
  /** The id it gets here; its own by default. */
  readonly sessionId?: string | undefined;
  /** Whose session it is here; whose it was, by default. */
  readonly tenant?: string | undefined;
  /** What a session may spend here unless its own budget is narrower. */
  readonly budget?: SessionBudget | null;
}

export interface ImportedSession {
  readonly sessionId: string;
  readonly revision: number;
}

/** How a session is exported. */
export interface ExportOptions extends WorkOptions, Pick<ExportRequest, "format"> {}

export interface ImportOptions extends WorkOptions {
  /** The id it gets here; its own by default. */
  readonly id?: string;
  /** Whose session it is here; whose it was, by default. */
  readonly tenant?: string;
}

export type PruneOptions = Omit<PrunePolicy, "running"> & WorkOptions;

interface MaintenanceOptions {
  readonly backend: StoreBackend;
  readonly clock: Clock;
  /** Puts a write into the queue of commits. */
  readonly write: (write: StoreWrite) => Promise<WriteReceipt>;
  /** Does something while nothing else is being written. */
  readonly alone: Alone;
  /** Lets commits that wait be written; throws once the store closes. */
  readonly pause: () => Promise<void>;
}

/**
 * What is done to a store beside committing to it. One thing at a time, so that none removes what another is bringing;
 * in short steps, so that commits do not wait for it.
 */
export class Maintenance {
  readonly #options: MaintenanceOptions;
  readonly #suspects: Suspects = new Map();
  #pruning: Pruning | undefined;
  readonly #works = new Serial();

  constructor(options: MaintenanceOptions) {
    this.#options = options;
  }

  /** Told of every write that was accepted, at once. */
  wrote(write: StoreWrite): void {
    this.#pruning?.wrote(write);
  }

  /** Resolves when nothing is going on any more. */
  ended(): Promise<void> {
    return this.#works.ended();
  }

  prune(policy: PrunePolicy = {}, work: WorkOptions = {}): Promise<PruneReport> {
    return this.#next(work, async (pause) => {
      const { backend, clock, alone } = this.#options;
      checkPolicy(policy);
      this.#pruning = new Pruning(backend, { policy, suspects: this.#suspects, now: clock.wallNow(), alone });
      try {
        return await this.#pruning.run(pause);
      } finally {
        this.#pruning = undefined;
      }
    });
  }

  /** A session as bytes, or in a file, which is there whole or not at all. */
  exportSession(
    { sessionId, file, format = "msgpack" }: ExportRequest,
    work: WorkOptions = {},
  ): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.#next(work, async (pause) => {
      const { backend, alone } = this.#options;
      // Its head and its rows are of one moment.
      const session = await alone(() => readSession(backend, sessionId));
      const pieces = format === "json" ? sessionJson(backend, session) : sessionFile(backend, session);
      const wrote = (done: number) => pause({ step: "write", done, total: null });
      if (file === undefined) return gathered(pieces, wrote);
      await writeWhole(file, pieces, wrote);
      return undefined;
    });
  }

  importSession({ bytes, sessionId, tenant, budget }: ImportRequest, work: WorkOptions = {}): Promise<ImportedSession> {
    return this.#next(work, async (pause) => {
      const reading = readingExport(bytes);
      let read = reading.next();
      for (; !read.done; read = reading.next()) await pause({ step: "read", done: read.value, total: bytes.length });
      const id = checkSessionId(sessionId ?? read.value.head.sessionId);
      let done = 0;
      let revision = 0;
      for (const part of importing(read.value, { sessionId: id, tenant, ...(budget && { budget }) })) {
        await this.#options.write(part);
        revision = part.head?.revision ?? 0;
        for (const record of [...part.segments, ...part.components]) done += record.bytes.length;
        // With its head the session is there, and nobody can take that back.
        if (part.head === undefined) await pause({ step: "write", done, total: bytes.length });
      }
      return { sessionId: id, revision };
    });
  }

  /** The store as it is at one moment, as the store of another folder. */
  backup({ folder }: { readonly folder: string }, work: WorkOptions = {}): Promise<void> {
    return this.#next(work, async () => {
      const { backend } = this.#options;
      if (backend.backup === undefined)
        throw new TroupeError("store_not_on_disk", "This store is not on a disk; export its sessions instead.");
      await fillFolder(folder, "data.mdb", async (draft) => backend.backup?.(draft));
    });
  }

  #next<T>(work: WorkOptions, run: (pause: Pause) => Promise<T>): Promise<T> {
    const pause = pauseOf(this.#options.pause, work);
    return this.#works.run(async () => {
      // It may have waited for others.
      await pause();
      return run(pause);
    });
  }
}

function checkPolicy({ graceMs = 0, journalsOlderThanMs = 0 }: PrunePolicy): void {
  for (const [name, value] of Object.entries({ graceMs, journalsOlderThanMs })) {
    if (typeof value !== "number" || !(value >= 0))
      throw invalidOptions(`${name} must be a number of milliseconds from 0, not ${String(value)}`);
  }
}

async function gathered(
  pieces: AsyncIterable<Uint8Array>,
  pause: (gathered: number) => Promise<void>,
): Promise<Uint8Array<ArrayBuffer>> {
  const kept: Uint8Array[] = [];
  let size = 0;
  for await (const piece of pieces) {
    kept.push(piece);
    size += piece.length;
    await pause(size);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const piece of kept) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

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
  { id: sessionId, tenant, ...work }: ImportOptions = {},
): Promise<ImportedSession> {
  const bytes = await readWhole(source);
  const request = { bytes, sessionId, tenant };
  return withStore(path, (_, maintenance) => maintenance.importSession(request, work), { create: true });
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

export interface MigrationReport {
  /** Records that were looked at; 0 for a store that had this release's layout already. */
  readonly records: number;
}

/**
 * Brings a store that nobody has open to this release's layout, step by step; opening a store does the same without being
 * asked, and cannot be watched. Stopped by `signal`, or by the end of the process, it goes on where it was the next time.
 * There is no way back: once it has begun, releases of the older layout refuse the store with `store_version_unknown`.
 *
 * @example
 * await migrateStore("./data", { onProgress: ({ done, total }) => console.log(`${done} of ${total}`) });
 */
export async function migrateStore(path: string, work: WorkOptions = {}): Promise<MigrationReport> {
  checkThere(path);
  const lock = acquireStoreLock(path, systemClock);
  try {
    const pause = pauseOf(() => loopTurn(systemClock), work);
    let records = 0;
    for (const { done, total } of migratingFolder(path)) {
      records = total;
      await pause({ step: "migrate", done, total });
    }
    return { records };
  } finally {
    lock.release();
  }
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
      write: (write) => written(backend, write),
      alone: (run) => run(),
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
