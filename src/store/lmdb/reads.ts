import type { Head, JournalRow } from "../../kernel/index.js";
import {
  inOrder,
  journalRange,
  openComponent,
  openHead,
  openJournalRow,
  type StoreReader,
  unseal,
} from "../records/index.js";
import { readBytes, type Table, type Tables } from "./file/layout.js";

/** What is read from the tables of a store. */
export class TableReader implements StoreReader {
  protected readonly tables: Tables;

  constructor(tables: Tables) {
    this.tables = tables;
  }

  head(sessionId: string): Head | undefined {
    this.refresh();
    const bytes = readBytes(this.tables.heads, sessionId);
    return bytes && openHead(sessionId, bytes).head;
  }

  segment(id: string): Uint8Array | undefined {
    const bytes = this.#unchanging(this.tables.segments, id);
    return bytes && unseal(bytes);
  }

  component(hash: string): Uint8Array | undefined {
    const bytes = this.#unchanging(this.tables.components, hash);
    return bytes && openComponent(hash, bytes);
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

export function readJournal(tables: Tables, sessionId: string): JournalRow[] {
  const rows: JournalRow[] = [];
  for (const { key, value } of tables.journal.getRange(journalRange(sessionId))) rows.push(openJournalRow(key, value));
  return inOrder(sessionId, rows);
}
