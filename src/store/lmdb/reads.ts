import type { JournalRow, StoredHead } from "../../kernel/index.js";
import { inOrder, journalRange, openHead, openJournalRow, sessionOfJournalKey, unseal } from "../records/index.js";
import { readBytes, type Table, type Tables } from "./file/layout.js";

export function readHead(tables: Tables, sessionId: string): StoredHead | undefined {
  const bytes = readBytes(tables.heads, sessionId);
  return bytes && openHead(sessionId, bytes);
}

export function readSegment(tables: Tables, id: string): Uint8Array | undefined {
  const bytes = readBytes(tables.segments, id);
  return bytes && unseal(bytes);
}

export function readJournal(tables: Tables, sessionId: string): JournalRow[] {
  const rows: JournalRow[] = [];
  for (const { key, value } of tables.journal.getRange(journalRange(sessionId))) rows.push(openJournalRow(key, value));
  return inOrder(sessionId, rows);
}

export function keysAfter(table: Table, after: string | undefined, limit: number): string[] {
  // The range begins with the key itself, which is left out unless it is gone.
  const range = after === undefined ? { limit } : { start: after, limit: limit + 1 };
  return [...table.getKeys(range)].filter((key) => key !== after).slice(0, limit);
}

/** Each session that has rows, once: from each one's first row to behind its last. */
export function journalSessions(journal: Table, after: string | undefined, limit: number): string[] {
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

export function countOf(table: Table): number {
  // The declaration says `{}`.
  return (table.getStats() as { readonly entryCount: number }).entryCount;
}
