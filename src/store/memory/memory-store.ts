import {
  type Change,
  type CommitBudget,
  type Head,
  type JournalRow,
  planWrites,
  type StoredHead,
  type StoreWrite,
  type WriteFacts,
  type WriteResult,
} from "../../kernel/index.js";
import { countWrites, type KeyTable, type StoreBackend, segmentOutline, writeFailed } from "../records/index.js";

/**
 * A store that lives as long as its thread: for tests, and for hosts that keep their sessions elsewhere.
 *
 * @example
 * const backend = openMemory();
 * backend.write([{ kind: "commit", commit: { head, expectedRevision: 0, components: [] } }]);
 */
export function openMemory(options: { readonly commitBudget?: CommitBudget } = {}): StoreBackend {
  return new MemoryBackend(options.commitBudget);
}

class MemoryBackend implements StoreBackend {
  readonly #heads = new Map<string, StoredHead>();
  readonly #segments = new Map<string, Uint8Array>();
  readonly #components = new Map<string, Uint8Array>();
  readonly #journals = new Map<string, JournalRow[]>();
  readonly #deleted = new Set<string>();
  readonly #budget: CommitBudget | undefined;
  readonly writes = { transactions: 0, records: 0 };

  readonly #facts: WriteFacts = {
    head: (sessionId) => this.#heads.get(sessionId),
    isDeleted: (sessionId) => this.#deleted.has(sessionId),
    segment: (id) => {
      const bytes = this.#segments.get(id);
      return bytes && segmentOutline(bytes);
    },
    hasComponent: (hash) => this.#components.has(hash),
    outline: segmentOutline,
    journal: (sessionId) => this.#journals.get(sessionId) ?? [],
    journalRow: (sessionId, sequence) => this.#journals.get(sessionId)?.[sequence],
  };

  constructor(budget: CommitBudget | undefined) {
    this.#budget = budget;
  }

  write(batch: readonly StoreWrite[]): WriteResult[] {
    try {
      // Everything that can throw happens while planning, before the first map changes: that is the transaction here.
      const { results, changes } = planWrites(this.#facts, batch, this.#budget);
      for (const change of changes) this.#carryOut(change);
      countWrites(this.writes, changes);
      return results;
    } catch (cause) {
      return writeFailed(batch, cause);
    }
  }

  #carryOut(change: Change): void {
    switch (change.kind) {
      case "put_head":
        this.#heads.set(change.stored.head.sessionId, change.stored);
        break;
      case "put_segment":
        this.#segments.set(change.id, change.bytes);
        break;
      case "put_component":
        this.#components.set(change.hash, change.bytes);
        break;
      case "put_journal":
        this.#journals.set(change.sessionId, [...(this.#journals.get(change.sessionId) ?? []), change.row]);
        break;
      case "clear_journal":
        this.#journals.delete(change.sessionId);
        break;
      case "delete_head":
        this.#heads.delete(change.sessionId);
        this.#deleted.add(change.sessionId);
        break;
      case "delete_segment":
        this.#segments.delete(change.id);
        break;
      case "delete_component":
        this.#components.delete(change.hash);
        break;
    }
  }

  keys(table: KeyTable, after: string | undefined, limit: number): string[] {
    const tables = {
      heads: this.#heads,
      segments: this.#segments,
      components: this.#components,
      journals: this.#journals,
    };
    const all = [...tables[table].keys()].sort(byUtf8);
    return all.filter((key) => after === undefined || byUtf8(key, after) > 0).slice(0, limit);
  }

  head(sessionId: string): Head | undefined {
    return this.#heads.get(sessionId)?.head;
  }

  segment(id: string): Uint8Array | undefined {
    return this.#segments.get(id);
  }

  component(hash: string): Uint8Array | undefined {
    return this.#components.get(hash);
  }

  journal(sessionId: string): readonly JournalRow[] {
    return this.#journals.get(sessionId) ?? [];
  }

  isDeleted(sessionId: string): boolean {
    return this.#deleted.has(sessionId);
  }

  sessionIds(): string[] {
    return [...this.#heads.keys()].sort(byUtf8);
  }

  sessionCount(): number {
    return this.#heads.size;
  }

  close(): void {
    for (const table of [this.#heads, this.#segments, this.#components, this.#journals, this.#deleted]) table.clear();
  }
}

/** The order LMDB keeps its keys in; JavaScript's own differs beyond the basic plane. */
function byUtf8(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
