import { createRequire } from "node:module";
import {
  asTroupeError,
  type Change,
  type CommitBudget,
  type Head,
  type JournalMark,
  type JournalRow,
  messageOf,
  planWrites,
  type SegmentOutline,
  type StoredHead,
  type StoreWrite,
  TroupeError,
  type WriteFacts,
  type WriteResult,
} from "../kernel/index.js";
import type { StoreBackend, StoreReader } from "./contract.js";
import { checkDatabaseFile } from "./lmdb-file.js";
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
} from "./lmdb-layout.js";
import { segmentOutline } from "./outline.js";
import {
  journalKey,
  journalRange,
  openComponent,
  openHead,
  openJournalRow,
  seal,
  sealHead,
  sealJournalRow,
  sealOf,
  sessionOfJournalKey,
  unseal,
} from "./records.js";
import { countRecords, inOrder, writeFailed } from "./writes.js";

export interface LmdbOptions {
  readonly commitBudget?: CommitBudget;
}

/**
 * Opens the store of a folder for writing; a new one is created, an older layout is brought up to date. One thread may
 * do so, and that thread must never be terminated while the store is open: LMDB's write lock would stay held for ever.
 *
 * @example
 * const lock = acquireStoreLock("./data"); // on the main thread, first
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

  unfinishedIds(): Iterable<string> {
    this.#refresh();
    return journaledIds(this.#tables);
  }

  journal(sessionId: string): JournalRow[] {
    this.#refresh();
    return readJournal(this.#tables, sessionId);
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
    }
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

  unfinishedIds(): Iterable<string> {
    return journaledIds(this.#tables);
  }

  journal(sessionId: string): JournalRow[] {
    return readJournal(this.#tables, sessionId);
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

const MAX_REMEMBERED_JOURNALS = 10_000;
const MAX_REMEMBERED_HEADS = 1_000;

/** What the planner asks, answered from the tables as the transaction sees them. */
class LmdbFacts implements WriteFacts {
  readonly #tables: Tables;
  /** What the journals of running turns hold, without their outcomes: otherwise every record would read them all. */
  readonly #journals = new Map<string, JournalMark[]>();
  readonly #heads = new Map<string, { readonly seal: number; readonly stored: StoredHead }>();

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /** What is stored now, always; what was written here is recognised by its seal and not decoded again. */
  head(sessionId: string): StoredHead | undefined {
    const bytes = readBytes(this.#tables.heads, sessionId);
    const written = this.#heads.get(sessionId);
    if (bytes !== undefined && written?.seal === sealOf(bytes)) return written.stored;
    return bytes && openHead(sessionId, bytes);
  }

  headWritten(seal: number, stored: StoredHead): void {
    if (this.#heads.size >= MAX_REMEMBERED_HEADS) this.#heads.clear();
    this.#heads.set(stored.head.sessionId, { seal, stored });
  }

  isDeleted(sessionId: string): boolean {
    return this.#tables.deleted.doesExist(sessionId);
  }

  segment(id: string): SegmentOutline | undefined {
    const bytes = readSegment(this.#tables, id);
    return bytes && segmentOutline(bytes);
  }

  hasComponent(hash: string): boolean {
    return this.#tables.components.doesExist(hash);
  }

  readonly outline = segmentOutline;

  journal(sessionId: string): readonly JournalMark[] {
    const known = this.#journals.get(sessionId);
    if (known !== undefined) return known;
    const marks = readJournal(this.#tables, sessionId).map(markOf);
    if (this.#journals.size >= MAX_REMEMBERED_JOURNALS) this.#journals.clear();
    this.#journals.set(sessionId, marks);
    return marks;
  }

  journalRow(sessionId: string, sequence: number): JournalRow | undefined {
    const key = journalKey(sessionId, sequence);
    const bytes = readBytes(this.#tables.journal, key);
    return bytes && openJournalRow(key, bytes);
  }

  /** Told only after the transaction: one that fails must leave no trace here either. */
  changed(changes: readonly Change[]): void {
    for (const change of changes) {
      if (change.kind === "clear_journal") this.#journals.delete(change.sessionId);
      else if (change.kind === "put_journal") this.#journals.get(change.sessionId)?.push(markOf(change.row));
    }
  }
}

function markOf({ sequence, turnId, key, hash }: JournalRow): JournalMark {
  return { sequence, turnId, key, hash };
}

function readHead(tables: Tables, sessionId: string): StoredHead | undefined {
  const bytes = readBytes(tables.heads, sessionId);
  return bytes && openHead(sessionId, bytes);
}

function readSegment(tables: Tables, id: string): Uint8Array | undefined {
  const bytes = readBytes(tables.segments, id);
  return bytes && unseal(bytes);
}

function readJournal(tables: Tables, sessionId: string): JournalRow[] {
  const rows: JournalRow[] = [];
  for (const { key, value } of tables.journal.getRange(journalRange(sessionId))) rows.push(openJournalRow(key, value));
  return inOrder(sessionId, rows);
}

function journaledIds(tables: Tables): Set<string> {
  const ids = new Set<string>();
  for (const key of tables.journal.getKeys()) ids.add(sessionOfJournalKey(key));
  return ids;
}

function countOf(table: Table): number {
  // The declaration says `{}`.
  return (table.getStats() as { readonly entryCount: number }).entryCount;
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
