import {
  type Head,
  type JournalRow,
  orderedNameOf,
  type Row,
  type RowName,
  rowKey,
  rowRange,
  type StoredHead,
} from "../../kernel/index.js";
import { damagedRecord } from "../../wire/index.js";
import {
  type IndexedSession,
  type IndexRange,
  inOrder,
  journalRange,
  type KeyRange,
  keysOfRows,
  type OrderRange,
  openComponent,
  openHead,
  openJournalRow,
  openRow,
  placesOfRows,
  placesOfSessions,
  type ReaderAtOnce,
  type RowRange,
  sessionAt,
  unseal,
} from "../records/index.js";
import { readBytes, type Table, type Tables } from "./file/layout.js";

/** What is read from the tables of a store. */
export class TableReader implements ReaderAtOnce {
  protected readonly tables: Tables;

  constructor(tables: Tables) {
    this.tables = tables;
  }

  head(sessionId: string): Head | undefined {
    return this.storedHead(sessionId)?.head;
  }

  storedHead(sessionId: string): StoredHead | undefined {
    this.refresh();
    const bytes = readBytes(this.tables.heads, sessionId);
    return bytes && openHead(sessionId, bytes);
  }

  segment(id: string): Uint8Array | undefined {
    const bytes = this.#unchanging(this.tables.segments, id);
    return bytes && unseal(bytes);
  }

  component(hash: string): Uint8Array | undefined {
    const bytes = this.#unchanging(this.tables.components, hash);
    return bytes && openComponent(hash, bytes);
  }

  componentSize(hash: string): number | undefined {
    const size = () => this.tables.components.getBinaryFast(hash)?.length;
    const found = size();
    if (found !== undefined) return found;
    this.refresh();
    return size();
  }

  journal(sessionId: string): JournalRow[] {
    this.refresh();
    return readJournal(this.tables, sessionId);
  }

  isDeleted(sessionId: string): boolean {
    this.refresh();
    return this.tables.deleted.doesExist(sessionId);
  }

  sessionIds(): Iterable<string> {
    this.refresh();
    return this.tables.heads.getKeys();
  }

  sessionCount(): number {
    this.refresh();
    // The declaration says `{}`.
    return (this.tables.heads.getStats() as { readonly entryCount: number }).entryCount;
  }

  children(sessionId: string): string[] {
    this.refresh();
    const { start, end } = rowRange(sessionId);
    return [...this.tables.children.getKeys({ start, end })].map((key) => key.slice(start.length));
  }

  row(name: RowName): Row | undefined {
    this.refresh();
    return readRow(this.tables, name);
  }

  rows(range: RowRange): Row[] {
    this.refresh();
    return keysOf(this.tables.rows, keysOfRows(range)).map((key) => this.#rowAt(key));
  }

  rowsInOrder(range: OrderRange): Row[] {
    this.refresh();
    return keysOf(this.tables.order, placesOfRows(range)).map((place) =>
      this.#rowAt(rowKey(orderedNameOf(place).name)),
    );
  }

  sessionsInOrder(range: IndexRange): IndexedSession[] {
    this.refresh();
    return keysOf(this.tables.order, placesOfSessions(range)).map(sessionAt);
  }

  /** A row that is listed. */
  #rowAt(key: string): Row {
    const bytes = readBytes(this.tables.rows, key);
    if (bytes === undefined) throw damagedRecord("a row that is listed is missing");
    return openRow(key, bytes);
  }

  close(): void {
    // Nothing is pending, because every write of a store is synchronous: LMDB closes before this returns.
    this.tables.root.close();
  }

  /** Before what may have changed is read; the thread that writes always sees its own writes. */
  protected refresh(): void {}

  /** What is never rewritten may be read from any snapshot that has it; only a miss needs the newest one. */
  #unchanging(table: Table, key: string): Uint8Array | undefined {
    const bytes = readBytes(table, key);
    if (bytes !== undefined) return bytes;
    this.refresh();
    return readBytes(table, key);
  }
}

/** Reads on a thread that does not write. */
export class SnapshotReader extends TableReader {
  // LMDB keeps a read snapshot until a timer fires, and an acknowledgement can arrive before that timer.
  protected override refresh(): void {
    this.tables.root.resetReadTxn();
  }
}

export function readRow(tables: Tables, name: RowName): Row | undefined {
  const key = rowKey(name);
  const bytes = readBytes(tables.rows, key);
  return bytes && openRow(key, bytes);
}

export function keysOf(table: Table, { start, end, limit, without, reverse = false }: KeyRange): string[] {
  // Backwards LMDB begins at the end itself, which does not belong to the range, and goes on to before the start, which does.
  const more = limit + 2;
  const range = reverse ? { start: end, end: start, reverse, limit: more } : { start, end, limit: more };
  const keys = [...table.getKeys(range)].filter((key) => key !== without && key !== end);
  return keys.slice(0, limit);
}

export function readJournal(tables: Tables, sessionId: string): JournalRow[] {
  const rows: JournalRow[] = [];
  for (const { key, value } of tables.journal.getRange(journalRange(sessionId))) rows.push(openJournalRow(key, value));
  return inOrder(sessionId, rows);
}
