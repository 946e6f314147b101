import { type Clock, systemClock } from "../../async/index.js";
import {
  type Change,
  type CommitBudget,
  type JournalMark,
  type JournalRow,
  orderKey,
  placeOf,
  planWrites,
  type Row,
  type RowName,
  type RowOrder,
  rowKey,
  rowNameOf,
  rowRange,
  type SegmentOutline,
  type SessionPlace,
  type StoredHead,
  type StoreWrite,
  type WriteFacts,
  type WriteResult,
} from "../../kernel/index.js";
import { behindGate } from "../../wire/index.js";
import {
  type BackendAtOnce,
  type Claim,
  Claims,
  childKey,
  countWrites,
  journalKey,
  journalRange,
  type KeyTable,
  openHead,
  openJournalRow,
  placeOfSession,
  type ReaderAtOnce,
  seal,
  sealHead,
  sealJournalRow,
  sealOf,
  sealRow,
  sealTombstone,
  segmentOutline,
  sessionOfJournalKey,
  unseal,
  writeFailed,
} from "../records/index.js";
import { watchFile } from "./file/file.js";
import {
  LAYOUT_VERSION,
  nextOpening,
  openTables,
  type Root,
  readBytes,
  readLayout,
  recordLayout,
  type Table,
  type Tables,
} from "./file/layout.js";
import type { Layout, MigrationProgress } from "./file/layout-version.js";
import { migrating } from "./file/migration.js";
import { storeOpenFailed, unlessTold } from "./file/open-errors.js";
import { openRoot } from "./file/root.js";
import { readingBehind } from "./gated.js";
import { readJournal, readRow, SnapshotReader, TableReader } from "./reads.js";

/**
 * Opens the store of a folder for writing; a new one is created, an older layout is brought up to date. One thread may
 * do so, and that thread must never be terminated while the store is open: LMDB's write lock would stay held for ever.
 *
 * @example
 * const lock = acquireStoreLock("./data", clock); // on the main thread, first
 * const backend = openLmdb("./data"); // in the store worker
 */
export function openLmdb(path: string, options: LmdbOptions = {}): BackendAtOnce {
  const root = openRoot(path, { readOnly: false });
  try {
    // The version comes first: the tables of a layout this release does not know are not even opened.
    const found = readLayout(root);
    const { tables, opening } = found === undefined ? makeStore(root) : openStore(root, found, options);
    return new LmdbBackend(tables, options, { opening, missing: watchFile(path) });
  } catch (error) {
    root.close();
    throw unlessTold(path, error);
  }
}

/** In one transaction: each waits for the disk, and a store has nine tables. */
function makeStore(root: Root): OpenStore {
  return root.transactionSync(() => {
    const tables = openTables(root);
    recordLayout(root, { version: LAYOUT_VERSION });
    return { tables, opening: nextOpening(root) };
  });
}

function openStore(root: Root, found: Layout, { onMigration }: LmdbOptions): OpenStore {
  const tables = openTables(root);
  for (const progress of migrating(tables, found)) onMigration?.(progress);
  return { tables, opening: root.transactionSync(() => nextOpening(root)) };
}

/**
 * Opens the store of a folder for reading, in any thread, after the store worker has opened it for writing. In a thread
 * that others may end everything is read behind a gate.
 *
 * @example
 * const reader = openLmdbReader("./data");
 * reader.head("chat-42")?.revision;
 */
export function openLmdbReader(path: string, gate?: Int32Array): LmdbReader {
  if (gate !== undefined)
    return readingBehind(
      gate,
      behindGate(gate, () => openLmdbReader(path)),
    );
  const root = openRoot(path, { readOnly: true });
  try {
    const layout = readLayout(root);
    if (layout?.version !== LAYOUT_VERSION || layout.migration !== undefined) {
      throw storeOpenFailed(path, "it has not been opened for writing yet");
    }
    return new SnapshotReader(openTables(root));
  } catch (error) {
    root.close();
    throw unlessTold(path, error);
  }
}

interface OpenStore {
  readonly tables: Tables;
  readonly opening: number;
}

interface LmdbOptions {
  /** Told how far an older layout is brought up to date, between two steps. */
  readonly onMigration?: (progress: MigrationProgress) => void;
  readonly commitBudget?: CommitBudget;
  readonly clock?: Pick<Clock, "wallNow">;
}

/** A read-only view from any thread. It sees everything that was acknowledged before the call. */
export interface LmdbReader extends ReaderAtOnce {
  close(): void;
}

// Not exported: its declaration would make every user compile lmdb's own types, which do not compile everywhere.
class LmdbBackend extends TableReader implements BackendAtOnce {
  readonly #facts: LmdbFacts;
  readonly #claims: Claims;
  readonly #budget: CommitBudget | undefined;
  /** Why the file that is written to is no longer the folder's. */
  readonly #missing: () => string | undefined;
  readonly writes = { transactions: 0, records: 0 };

  constructor(
    tables: Tables,
    { commitBudget, clock = systemClock }: LmdbOptions,
    { opening, missing }: { readonly opening: number; readonly missing: () => string | undefined },
  ) {
    super(tables);
    this.#missing = missing;
    this.#claims = new Claims(opening);
    this.#facts = new LmdbFacts(tables, this.#claims, clock);
    this.#budget = commitBudget;
  }

  claim(sessionId: string, claim: Claim): number {
    return this.#claims.claim(sessionId, claim);
  }

  release(sessionId: string, epoch: number): void {
    this.#claims.release(sessionId, epoch);
  }

  leave(owner: string): void {
    this.#claims.leave(owner);
  }

  isOwned(sessionId: string): boolean {
    return this.#claims.isOwned(sessionId);
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
    const { results, changes } = this.tables.root.transactionSync(() => {
      const plan = planWrites(this.#facts, batch, this.#budget);
      for (const change of plan.changes) this.#carryOut(change);
      return plan;
    });
    countWrites(this.writes, changes);
    this.#facts.changed(changes);
    // After the sync, so that nothing is acknowledged that was removed before it; a write that was made before, too.
    const missing = this.#missing();
    return missing === undefined ? results : writeFailed(batch, missing);
  }

  #carryOut(change: Change): void {
    const { heads, segments, components, journal, deleted, rows } = this.tables;
    switch (change.kind) {
      case "put_head": {
        const bytes = sealHead(change.stored);
        const { sessionId } = change.stored.head;
        heads.putSync(sessionId, bytes);
        this.#place(sessionId, change.before, placeOf(change.stored));
        this.#facts.headWritten(sealOf(bytes), change.stored);
        break;
      }
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
      case "delete_head": {
        const { sessionId, revision, at, before } = change;
        heads.removeSync(sessionId);
        this.#place(sessionId, before, undefined);
        deleted.putSync(sessionId, sealTombstone({ sessionId, revision, at }));
        break;
      }
      case "put_row":
        rows.putSync(rowKey(change.row), sealRow(change.row));
        this.#orderRow(change.row, change.before, change.row.order);
        break;
      case "delete_row":
        rows.removeSync(rowKey(change.name));
        this.#orderRow(change.name, change.before, undefined);
        break;
      case "delete_segment":
        segments.removeSync(change.id);
        break;
      case "delete_component":
        components.removeSync(change.hash);
        break;
    }
  }

  /** Puts a session where lists look for it. */
  #place(sessionId: string, before: SessionPlace | undefined, after: SessionPlace | undefined): void {
    const { order, children } = this.tables;
    // A session's tenant never changes, and its time seldom.
    if (before?.order.at !== after?.order.at) {
      if (before !== undefined) order.removeSync(placeOfSession(sessionId, before.order));
      if (after !== undefined) order.putSync(placeOfSession(sessionId, after.order), NOTHING);
    }
    if (before?.parent === after?.parent) return;
    if (before?.parent !== undefined) children.removeSync(childKey(before.parent, sessionId));
    if (after?.parent !== undefined) children.putSync(childKey(after.parent, sessionId), NOTHING);
  }

  #orderRow(name: RowName, before: RowOrder | undefined, after: RowOrder | undefined): void {
    const { order } = this.tables;
    if (before !== undefined) order.removeSync(orderKey(name, before));
    if (after !== undefined) order.putSync(orderKey(name, after), NOTHING);
  }

  keys(table: KeyTable, after: string | undefined, limit: number): string[] {
    if (table === "journals") return journalSessions(this.tables.journal, after, limit);
    // The range begins with the key itself, which is left out unless it is gone.
    const range = after === undefined ? { limit } : { start: after, limit: limit + 1 };
    return [...this.tables[table].getKeys(range)].filter((key) => key !== after).slice(0, limit);
  }

  async backup(folder: string): Promise<void> {
    await this.tables.root.backup(folder, false);
  }
}

const NOTHING = new Uint8Array();

/** Each session that has a journal, once: from each one's first row to behind its last. */
function journalSessions(journal: Table, after: string | undefined, limit: number): string[] {
  const sessions: string[] = [];
  for (let start = after && journalRange(after).end; sessions.length < limit; ) {
    const [key] = journal.getKeys(start === undefined ? { limit: 1 } : { start, limit: 1 });
    if (key === undefined) break;
    const sessionId = sessionOfJournalKey(key);
    sessions.push(sessionId);
    start = journalRange(sessionId).end;
  }
  return sessions;
}

const MAX_REMEMBERED_JOURNALS = 10_000;
const MAX_REMEMBERED_HEADS = 1_000;

/** What the planner asks, answered from the tables as the transaction sees them. */
class LmdbFacts implements WriteFacts {
  readonly #tables: Tables;
  /** What the journals of running turns hold, without their outcomes: otherwise every record would read them all. */
  readonly #journals = new Map<string, JournalMark[]>();
  readonly #heads = new Map<string, { readonly seal: number; readonly stored: StoredHead }>();

  readonly #claims: Claims;
  readonly #clock: Pick<Clock, "wallNow">;

  constructor(tables: Tables, claims: Claims, clock: Pick<Clock, "wallNow">) {
    this.#tables = tables;
    this.#claims = claims;
    this.#clock = clock;
  }

  now(): number {
    return this.#clock.wallNow();
  }

  epoch(sessionId: string): number | undefined {
    return this.#claims.epoch(sessionId);
  }

  row(name: RowName): Row | undefined {
    return readRow(this.#tables, name);
  }

  rowsOf(sessionId: string): RowName[] {
    return [...this.#tables.rows.getKeys(rowRange(sessionId))].map(rowNameOf);
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
    const bytes = readBytes(this.#tables.segments, id);
    return bytes && segmentOutline(unseal(bytes));
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
