import { createRequire } from "node:module";
import {
  asTroupeError,
  type Change,
  type CommitBudget,
  type Head,
  type JournalRow,
  messageOf,
  planWrites,
  type StoredHead,
  type StoreWrite,
  TroupeError,
  type WriteResult,
} from "../../kernel/index.js";
import type { KeyTable, StoreBackend, StoreReader, TableName } from "../records/index.js";
import {
  countRecords,
  journalKey,
  openComponent,
  seal,
  sealHead,
  sealJournalRow,
  sealOf,
  sealTombstone,
  type Tombstone,
  unseal,
  writeFailed,
} from "../records/index.js";
import { LmdbFacts } from "./facts.js";
import { checkDatabaseFile } from "./file/file.js";
import {
  bringUpToDate,
  LAYOUT_VERSION,
  openTables,
  type Root,
  readBytes,
  readLayout,
  TABLE,
  type Table,
  type Tables,
} from "./file/layout.js";
import { countOf, journalSessions, keysAfter, readHead, readJournal, readSegment } from "./reads.js";

export interface LmdbOptions {
  readonly commitBudget?: CommitBudget;
}

/**
 * Opens the store of a folder for writing; a new one is created, an older layout is brought up to date. One thread may
 * do so, and that thread must never be terminated while the store is open: LMDB's write lock would stay held for ever.
 *
 * @example
 * const lock = acquireStoreLock("./data", clock); // on the main thread, first
 * const backend = openLmdb("./data"); // in the store worker
 */
export function openLmdb(path: string, options: LmdbOptions = {}): StoreBackend {
  const root = openRoot(path, { readOnly: false });
  try {
    // The version comes first: the tables of a layout this release does not know are not even opened.
    const found = readLayout(root);
    const tables = openTables(root);
    bringUpToDate(tables, found);
    return new LmdbBackend(tables, options);
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
    if (readLayout(root) !== LAYOUT_VERSION) {
      throw new TroupeError("store_open_failed", `The store at ${path} has not been opened for writing yet.`);
    }
    return new TableReader(openTables(root));
  } catch (error) {
    root.close();
    throw asTroupeError(error, "store_open_failed", `The store at ${path} cannot be read: ${messageOf(error)}`);
  }
}

/** A record as it is stored. */
export interface LmdbRecord {
  readonly table: TableName;
  readonly key: string;
  readonly bytes: Uint8Array;
}

const RECORDS_PER_TRANSACTION = 1_000;

/** Makes a new store of records that are sealed already. */
export function createLmdb(path: string, records: Iterable<LmdbRecord>): void {
  const root = openRoot(path, { readOnly: false });
  try {
    const tables = openTables(root);
    const put = (part: readonly LmdbRecord[]) =>
      root.transactionSync(() => {
        for (const { table, key, bytes } of part) tables[table].putSync(key, bytes);
      });
    const part: LmdbRecord[] = [];
    for (const record of records) {
      part.push(record);
      if (part.length === RECORDS_PER_TRANSACTION) put(part.splice(0));
    }
    put(part);
    bringUpToDate(tables, undefined);
  } finally {
    root.close();
  }
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
    return readHead(this.#tables, sessionId)?.head;
  }

  segment(id: string): Uint8Array | undefined {
    const bytes = this.#unchanging(this.#tables.segments, id);
    return bytes && unseal(bytes);
  }

  component(hash: string): Uint8Array | undefined {
    const bytes = this.#unchanging(this.#tables.components, hash);
    return bytes && openComponent(hash, bytes);
  }

  journal(sessionId: string): JournalRow[] {
    this.#refresh();
    return readJournal(this.#tables, sessionId);
  }

  isDeleted(sessionId: string): boolean {
    this.#refresh();
    return this.#tables.deleted.doesExist(sessionId);
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
  readonly #facts: LmdbFacts;
  readonly #budget: CommitBudget | undefined;
  readonly writes = { transactions: 0, records: 0 };

  constructor(tables: Tables, { commitBudget }: LmdbOptions) {
    this.#tables = tables;
    this.#facts = new LmdbFacts(tables);
    this.#budget = commitBudget;
  }

  write(batch: readonly StoreWrite[]): WriteResult[] {
    try {
      return this.#transact(batch);
    } catch (cause) {
      return writeFailed(batch, cause);
    }
  }

  #transact(batch: readonly StoreWrite[]): WriteResult[] {
    // Decided inside the transaction, so the compare-and-set holds even against a writer that ignored the lock.
    // Only `transactionSync` rolls back when its body throws; without overlapping syncs it returns after the sync.
    const { results, changes } = this.#tables.root.transactionSync(() => {
      const plan = planWrites(this.#facts, batch, this.#budget);
      for (const change of plan.changes) this.#carryOut(change);
      return plan;
    });
    if (changes.length > 0) this.writes.transactions++;
    this.writes.records += countRecords(changes);
    this.#facts.changed(changes);
    return results;
  }

  #carryOut(change: Change): void {
    const { segments, components, journal } = this.#tables;
    switch (change.kind) {
      case "put_head":
        this.#putHead(change.stored);
        break;
      case "put_segment":
        segments.putSync(change.id, seal(change.bytes));
        break;
      case "put_component":
        components.putSync(change.hash, change.bytes);
        break;
      case "put_journal":
        journal.putSync(
          journalKey(change.sessionId, change.row.sequence),
          sealJournalRow(change.sessionId, change.row),
        );
        break;
      case "clear_journal":
        for (const sequence of change.sequences) journal.removeSync(journalKey(change.sessionId, sequence));
        break;
      case "delete_head":
        this.#deleteHead(change);
        break;
      case "delete_segment":
        segments.removeSync(change.id);
        break;
      case "delete_component":
        components.removeSync(change.hash);
        break;
    }
  }

  #deleteHead(tombstone: Tombstone): void {
    const { sessionId, revision, at } = tombstone;
    this.#tables.heads.removeSync(sessionId);
    this.#tables.deleted.putSync(sessionId, sealTombstone({ sessionId, revision, at }));
  }

  keys(table: KeyTable, after: string | undefined, limit: number): string[] {
    return table === "journals"
      ? journalSessions(this.#tables.journal, after, limit)
      : keysAfter(this.#tables[table], after, limit);
  }

  #putHead(stored: StoredHead): void {
    const { sessionId } = stored.head;
    const bytes = sealHead(stored);
    this.#tables.heads.putSync(sessionId, bytes);
    this.#facts.headWritten(sealOf(bytes), stored);
  }

  head(sessionId: string): Head | undefined {
    return readHead(this.#tables, sessionId)?.head;
  }

  segment(id: string): Uint8Array | undefined {
    return readSegment(this.#tables, id);
  }

  component(hash: string): Uint8Array | undefined {
    const bytes = readBytes(this.#tables.components, hash);
    return bytes && openComponent(hash, bytes);
  }

  journal(sessionId: string): JournalRow[] {
    return readJournal(this.#tables, sessionId);
  }

  isDeleted(sessionId: string): boolean {
    return this.#facts.isDeleted(sessionId);
  }

  async backup(folder: string): Promise<void> {
    await this.#tables.root.backup(folder, false);
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

// LMDB grows its map by itself, but remapping under readers of other threads is best avoided: reserve address space
// (not memory, not disk) for more than a store will hold.
const MAP_BYTES = 64 * 1024 ** 3;

function openRoot(path: string, { readOnly }: { readonly readOnly: boolean }): Root {
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
