import { createRequire } from "node:module";
import type { Database, RootDatabase } from "lmdb";
import { asTroupeError, type Commit, type Head, messageOf, TroupeError } from "../kernel/index.js";
import { decode, encode } from "../wire/index.js";
import type { CommitResult, StoreBackend, StoreReader } from "./contract.js";
import { checkDatabaseFile } from "./lmdb-file.js";
import { planBatch, recordsOf, writeFailed } from "./plan.js";

/**
 * The embedded store. In its folder, `data.mdb` and `lock.mdb` are LMDB's and `troupe-owner.<n>` is the lock of lock.ts.
 * In the database, layout version 1, every table is a named database with string keys:
 *
 *   table        key            value
 *   meta         "layout"       encode({ version })
 *   heads        session id     encode(Head)
 *   segments     segment id     the bytes, as committed
 *   components   content hash   the bytes, as committed
 */
const LAYOUT_VERSION = 1;

/**
 * Opens the store of a folder for writing; a new one is created. One thread may do so, and that thread must never be
 * terminated while the store is open: LMDB's write lock would stay held for ever.
 *
 * @example
 * const lock = acquireStoreLock("./data"); // on the main thread, first
 * const backend = openLmdb("./data"); // in the store worker
 */
export function openLmdb(path: string): StoreBackend {
  const root = openRoot(path, { readOnly: false });
  try {
    // The version comes first: the tables of a layout this release does not know are not even opened.
    const isNew = !checkLayout(root);
    const tables = openTables(root);
    if (isNew) recordLayout(root);
    return new LmdbBackend(tables);
  } catch (error) {
    root.close();
    throw asTroupeError(error, "store_open_failed", `The store at ${path} cannot be opened: ${messageOf(error)}`);
  }
}

/**
 * Opens the store of a folder for reading, in any thread, after the store worker has opened it for writing.
 *
 * @example
 * const reader = openLmdbReader("./data");
 * reader.head("chat-42")?.revision;
 */
export function openLmdbReader(path: string): LmdbReader {
  const root = openRoot(path, { readOnly: true });
  try {
    return new TableReader(openTables(root));
  } catch (error) {
    root.close();
    throw asTroupeError(error, "store_open_failed", `The store at ${path} cannot be read: ${messageOf(error)}`);
  }
}

type Table = Database<Uint8Array, string>;
interface Tables {
  readonly root: RootDatabase<Uint8Array, string>;
  readonly heads: Table;
  readonly segments: Table;
  readonly components: Table;
}

/** A read-only view from any thread. It sees everything that was acknowledged before the call. */
export interface LmdbReader extends StoreReader {
  close(): void;
}

// Not exported: its declaration would make every user compile lmdb's own types, which do not compile everywhere.
class TableReader implements LmdbReader {
  readonly #tables: Tables;

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  head(sessionId: string): Head | undefined {
    this.#refresh();
    return readHead(this.#tables, sessionId);
  }

  segment(id: string): Uint8Array | undefined {
    return this.#unchanging(this.#tables.segments, id);
  }

  component(hash: string): Uint8Array | undefined {
    return this.#unchanging(this.#tables.components, hash);
  }

  sessionIds(): Iterable<string> {
    this.#refresh();
    return this.#tables.heads.getKeys();
  }

  sessionCount(): number {
    this.#refresh();
    return countOf(this.#tables.heads);
  }

  close(): void {
    this.#tables.root.close();
  }

  /** What is never rewritten may be read from any snapshot that has it; only a miss needs the newest one. */
  #unchanging(table: Table, key: string): Uint8Array | undefined {
    const bytes = readBytes(table, key);
    if (bytes !== undefined) return bytes;
    this.#refresh();
    return readBytes(table, key);
  }

  // LMDB keeps a read snapshot until a timer fires, and an acknowledgement can arrive before that timer.
  #refresh(): void {
    this.#tables.root.resetReadTxn();
  }
}

class LmdbBackend implements StoreBackend {
  readonly #tables: Tables;
  readonly writes = { transactions: 0, records: 0 };

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  commit(batch: readonly Commit[]): CommitResult[] {
    try {
      return this.#transact(batch);
    } catch (cause) {
      return writeFailed(batch, cause);
    }
  }

  #transact(batch: readonly Commit[]): CommitResult[] {
    const { root } = this.#tables;
    // Decided inside the transaction, so the compare-and-set holds even against a writer that ignored the lock.
    // Only `transactionSync` rolls back when its body throws; without overlapping syncs it returns after the sync.
    const { results, accepted } = root.transactionSync(() => {
      const plan = planBatch((id) => readHead(this.#tables, id), batch);
      for (const commit of plan.accepted) this.#put(commit);
      return plan;
    });
    if (accepted.length > 0) this.writes.transactions++;
    for (const commit of accepted) this.writes.records += recordsOf(commit);
    return results;
  }

  #put({ head, segment, components }: Commit): void {
    const tables = this.#tables;
    if (segment !== undefined) tables.segments.putSync(segment.id, segment.bytes);
    for (const { hash, bytes } of components) tables.components.putSync(hash, bytes);
    tables.heads.putSync(head.sessionId, encode(head));
  }

  head(sessionId: string): Head | undefined {
    return readHead(this.#tables, sessionId);
  }

  segment(id: string): Uint8Array | undefined {
    return readBytes(this.#tables.segments, id);
  }

  component(hash: string): Uint8Array | undefined {
    return readBytes(this.#tables.components, hash);
  }

  sessionIds(): Iterable<string> {
    return this.#tables.heads.getKeys();
  }

  sessionCount(): number {
    return countOf(this.#tables.heads);
  }

  close(): void {
    // Nothing is pending, because every write here is synchronous: LMDB closes before this returns.
    this.#tables.root.close();
  }
}

function readHead(tables: Tables, sessionId: string): Head | undefined {
  const bytes = readBytes(tables.heads, sessionId);
  return bytes === undefined ? undefined : decode<Head>(bytes);
}

function readBytes(table: Table, key: string): Uint8Array | undefined {
  // A copy LMDB gives away; as a plain byte array, because its own carries properties a reader must not depend on.
  const copy = table.getBinary(key);
  return copy === undefined ? undefined : new Uint8Array(copy.buffer, copy.byteOffset, copy.byteLength);
}

function countOf(table: Table): number {
  // The declaration says `{}`.
  return (table.getStats() as { readonly entryCount: number }).entryCount;
}

// LMDB grows its map by itself, but remapping under readers of other threads is best avoided: reserve address space
// (not memory, not disk) for more than a store will hold.
const MAP_BYTES = 64 * 1024 ** 3;
const TABLE = { encoding: "binary", compression: false, cache: false } as const;

function openRoot(path: string, { readOnly }: { readonly readOnly: boolean }): RootDatabase<Uint8Array, string> {
  checkDatabaseFile(path, { readOnly });
  // Loaded on first use: a native addon costs each thread some 30 ms, and a memory store needs none of it.
  const { open } = createRequire(import.meta.url)("lmdb") as typeof import("lmdb");
  try {
    return open<Uint8Array, string>({
      ...TABLE,
      path,
      readOnly,
      // Otherwise a folder whose name has a dot would be taken for a file.
      noSubdir: false,
      overlappingSync: false,
      mapSize: MAP_BYTES,
    });
  } catch (cause) {
    throw new TroupeError("store_open_failed", `The store at ${path} cannot be opened: ${messageOf(cause)}`, { cause });
  }
}

function openTables(root: RootDatabase<Uint8Array, string>): Tables {
  return {
    root,
    heads: openTable(root, "heads"),
    segments: openTable(root, "segments"),
    components: openTable(root, "components"),
  };
}

function openTable(root: RootDatabase<Uint8Array, string>, name: string): Table {
  const table: Table | undefined = root.openDB(name, TABLE);
  // In a read-only store a missing table comes back as undefined, against its declaration.
  if (table === undefined)
    throw new TroupeError("store_open_failed", `There is no store yet: table ${name} is missing.`);
  return table;
}

/** Whether the store has a layout of this release; false for a new one. A newer layout is refused. */
function checkLayout(root: RootDatabase<Uint8Array, string>): boolean {
  const unlessMissing = { ...TABLE, create: false };
  const meta: Table | undefined = root.openDB("meta", unlessMissing);
  const bytes = meta === undefined ? undefined : readBytes(meta, "layout");
  if (bytes === undefined) return false;
  const { version } = decode<{ readonly version: number }>(bytes);
  if (version === LAYOUT_VERSION) return true;
  throw new TroupeError(
    "store_version_unknown",
    `This store has layout version ${version}; this release knows version ${LAYOUT_VERSION}. Use the release that wrote it.`,
    { details: { found: version, known: LAYOUT_VERSION } },
  );
}

function recordLayout(root: RootDatabase<Uint8Array, string>): void {
  const meta = root.openDB("meta", TABLE);
  root.transactionSync(() => meta.putSync("layout", encode({ version: LAYOUT_VERSION })));
}
