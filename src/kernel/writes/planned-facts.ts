import type { StoredHead } from "./commit.js";
import type { JournalRow } from "./journal.js";
import type { Change, JournalMark, WriteFacts } from "./writes.js";

/** The facts with what earlier writes of the batch will change. */
export class PlannedFacts implements WriteFacts {
  readonly changes: Change[] = [];
  readonly #facts: WriteFacts;
  readonly #heads = new Map<string, StoredHead>();
  readonly #segments = new Map<string, Uint8Array>();
  readonly #components = new Set<string>();
  readonly #journals = new Map<string, JournalMark[]>();
  readonly #deleted = new Set<string>();
  /** Segments and components that are swept. */
  readonly #swept = new Set<string>();

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
      case "put_segment":
        this.#segments.set(change.id, change.bytes);
        break;
      case "put_component":
        this.#components.add(change.hash);
        break;
      case "put_journal":
        this.#journals.set(change.sessionId, [...this.journal(change.sessionId), change.row]);
        break;
      case "clear_journal":
        this.#journals.set(change.sessionId, []);
        break;
      case "delete_head":
        this.#heads.delete(change.sessionId);
        this.#deleted.add(change.sessionId);
        break;
      case "delete_segment":
        this.#segments.delete(change.id);
        this.#swept.add(change.id);
        break;
      case "delete_component":
        this.#components.delete(change.hash);
        this.#swept.add(change.hash);
        break;
    }
  }

  head(sessionId: string): StoredHead | undefined {
    if (this.#deleted.has(sessionId)) return undefined;
    return this.#heads.get(sessionId) ?? this.#facts.head(sessionId);
  }

  isDeleted(sessionId: string): boolean {
    return this.#deleted.has(sessionId) || this.#facts.isDeleted(sessionId);
  }

  segment(id: string) {
    const bytes = this.#segments.get(id);
    if (bytes !== undefined) return this.outline(bytes);
    return this.#swept.has(id) ? undefined : this.#facts.segment(id);
  }

  hasComponent(hash: string): boolean {
    return this.#components.has(hash) || (!this.#swept.has(hash) && this.#facts.hasComponent(hash));
  }

  outline(bytes: Uint8Array) {
    return this.#facts.outline(bytes);
  }

  journal(sessionId: string): readonly JournalMark[] {
    return this.#journals.get(sessionId) ?? this.#facts.journal(sessionId);
  }

  journalRow(sessionId: string, sequence: number): JournalRow | undefined {
    for (const change of this.changes.toReversed()) {
      if (change.kind === "clear_journal" && change.sessionId === sessionId) return undefined;
      if (change.kind === "put_journal" && change.sessionId === sessionId && change.row.sequence === sequence) {
        return change.row;
      }
    }
    return this.#facts.journalRow(sessionId, sequence);
  }
}
