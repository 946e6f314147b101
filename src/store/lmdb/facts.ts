import type { Change, JournalMark, JournalRow, SegmentOutline, StoredHead, WriteFacts } from "../../kernel/index.js";
import { journalKey, openHead, openJournalRow, sealOf, segmentOutline } from "../records/index.js";
import { readBytes, type Tables } from "./file/layout.js";
import { readJournal, readSegment } from "./reads.js";

const MAX_REMEMBERED_JOURNALS = 10_000;
const MAX_REMEMBERED_HEADS = 1_000;

/** What the planner asks, answered from the tables as the transaction sees them. */
export class LmdbFacts implements WriteFacts {
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
