import type { StoredHead } from "./commit.js";
import type { JournalRow } from "./journal.js";
import { type Row, type RowName, rowKey } from "./rows.js";
import type { Change, JournalMark, WriteFacts } from "./writes.js";

/** The facts with what earlier writes of the batch will change. */
export class PlannedFacts implements WriteFacts {
  readonly changes: Change[] = [];
  readonly #facts: WriteFacts;
  /** Records as the planned changes leave them, by key; undefined for one that a change removes. */
  readonly #heads = new Map<string, StoredHead | undefined>();
  readonly #segments = new Map<string, Uint8Array | undefined>();
  readonly #components = new Map<string, boolean>();
  readonly #journals = new Map<string, (JournalMark | JournalRow)[]>();
  readonly #rows = new Map<string, { readonly name: RowName; readonly row: Row | undefined }>();

  constructor(facts: WriteFacts) {
    this.#facts = facts;
  }

  add(changes: readonly Change[]): void {
    for (const change of changes) this.#apply(change);
    this.changes.push(...changes);
  }

  #apply(change: Change): void {
    switch (change.kind) {
      case "put_head":
        this.#heads.set(change.stored.head.sessionId, change.stored);
        break;
      case "delete_head":
        this.#heads.set(change.sessionId, undefined);
        break;
      case "put_segment":
        this.#segments.set(change.id, change.bytes);
        break;
      case "delete_segment":
        this.#segments.set(change.id, undefined);
        break;
      case "put_component":
      case "delete_component":
        this.#components.set(change.hash, change.kind === "put_component");
        break;
      case "put_journal":
        this.#journals.set(change.sessionId, [...this.journal(change.sessionId), change.row]);
        break;
      case "clear_journal":
        this.#journals.set(change.sessionId, []);
        break;
      case "put_row":
        this.#rows.set(rowKey(change.row), { name: change.row, row: change.row });
        break;
      case "delete_row":
        this.#rows.set(rowKey(change.name), { name: change.name, row: undefined });
        break;
    }
  }

  now(): number {
    return this.#facts.now();
  }

  epoch(sessionId: string): number | undefined {
    return this.#facts.epoch(sessionId);
  }

  row(name: RowName): Row | undefined {
    const planned = this.#rows.get(rowKey(name));
    return planned === undefined ? this.#facts.row(name) : planned.row;
  }

  rowsOf(sessionId: string): readonly RowName[] {
    const stored = this.#facts.rowsOf(sessionId).filter((name) => !this.#rows.has(rowKey(name)));
    const planned = [...this.#rows.values()].flatMap(({ name, row }) => (row?.session === sessionId ? [name] : []));
    return [...stored, ...planned];
  }

  head(sessionId: string): StoredHead | undefined {
    return this.#heads.has(sessionId) ? this.#heads.get(sessionId) : this.#facts.head(sessionId);
  }

  isDeleted(sessionId: string): boolean {
    return (this.#heads.has(sessionId) && !this.#heads.get(sessionId)) || this.#facts.isDeleted(sessionId);
  }

  segment(id: string) {
    const bytes = this.#segments.get(id);
    if (bytes !== undefined) return this.outline(bytes);
    return this.#segments.has(id) ? undefined : this.#facts.segment(id);
  }

  hasComponent(hash: string): boolean {
    return this.#components.get(hash) ?? this.#facts.hasComponent(hash);
  }

  outline(bytes: Uint8Array) {
    return this.#facts.outline(bytes);
  }

  journal(sessionId: string): readonly JournalMark[] {
    return this.#journals.get(sessionId) ?? this.#facts.journal(sessionId);
  }

  journalRow(sessionId: string, sequence: number): JournalRow | undefined {
    const planned = this.#journals.get(sessionId);
    const row = planned?.find((each) => each.sequence === sequence);
    if (planned !== undefined && row === undefined) return undefined;
    // A row that the store had already is kept here without its bytes, so it is read from the store.
    return row !== undefined && "bytes" in row ? row : this.#facts.journalRow(sessionId, sequence);
  }
}
