import { type Clock, systemClock } from "../../async/index.js";
import {
  type Change,
  type CommitBudget,
  type Head,
  type JournalRow,
  orderedNameOf,
  orderKey,
  placeOf,
  planWrites,
  type Row,
  type RowName,
  rowKey,
  type StoredHead,
  type StoreWrite,
  type WriteFacts,
  type WriteResult,
} from "../../kernel/index.js";
import {
  type BackendAtOnce,
  type Claim,
  Claims,
  countWrites,
  type IndexedSession,
  type IndexRange,
  type KeyRange,
  type KeyTable,
  keysOfRows,
  type OrderRange,
  placeOfSession,
  placesOfRows,
  placesOfSessions,
  type RowRange,
  segmentOutline,
  sessionAt,
  writeFailed,
} from "../records/index.js";

/**
 * A store that lives as long as its thread: for tests, and for hosts that keep their sessions elsewhere.
 *
 * @example
 * const backend = openMemory();
 * const epoch = backend.claim("chat-42", { owner: "me", take: "always" });
 * backend.write([{ kind: "commit", commit: { head, expectedRevision: 0, epoch, components: [] } }]);
 */
export function openMemory(
  options: { readonly commitBudget?: CommitBudget; readonly clock?: Pick<Clock, "wallNow"> } = {},
): BackendAtOnce {
  return new MemoryBackend(options.commitBudget, options.clock ?? systemClock);
}

class MemoryBackend implements BackendAtOnce {
  readonly #heads = new Map<string, StoredHead>();
  readonly #segments = new Map<string, Uint8Array>();
  readonly #components = new Map<string, Uint8Array>();
  readonly #journals = new Map<string, JournalRow[]>();
  readonly #deleted = new Set<string>();
  readonly #rows = new Map<string, Row>();
  readonly #claims = new Claims(1);
  readonly #budget: CommitBudget | undefined;
  readonly writes = { transactions: 0, records: 0 };
  readonly #facts: WriteFacts;

  constructor(budget: CommitBudget | undefined, clock: Pick<Clock, "wallNow">) {
    this.#budget = budget;
    this.#facts = {
      now: () => clock.wallNow(),
      epoch: (sessionId) => this.#claims.epoch(sessionId),
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
      row: (name) => this.row(name),
      rowsOf: (sessionId) => [...this.#rows.values()].filter(({ session }) => session === sessionId),
    };
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
      case "put_row":
        this.#rows.set(rowKey(change.row), change.row);
        break;
      case "delete_row":
        this.#rows.delete(rowKey(change.name));
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
      rows: this.#rows,
    };
    const all = [...tables[table].keys()].sort(byUtf8);
    return all.filter((key) => after === undefined || byUtf8(key, after) > 0).slice(0, limit);
  }

  head(sessionId: string): Head | undefined {
    return this.#heads.get(sessionId)?.head;
  }

  storedHead(sessionId: string): StoredHead | undefined {
    return this.#heads.get(sessionId);
  }

  segment(id: string): Uint8Array | undefined {
    return this.#segments.get(id);
  }

  component(hash: string): Uint8Array | undefined {
    return this.#components.get(hash);
  }

  componentSize(hash: string): number | undefined {
    return this.#components.get(hash)?.length;
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

  children(sessionId: string): string[] {
    return this.sessionIds().filter((id) => this.head(id)?.parent?.sessionId === sessionId);
  }

  row(name: RowName): Row | undefined {
    return this.#rows.get(rowKey(name));
  }

  rows(range: RowRange): Row[] {
    return page(this.#rows.keys(), keysOfRows(range)).map((key) => this.#rows.get(key) as Row);
  }

  rowsInOrder(range: OrderRange): Row[] {
    const places = [...this.#rows.values()].flatMap((row) => (row.order === undefined ? [] : orderKey(row, row.order)));
    return page(places, placesOfRows(range)).map((place) => this.row(orderedNameOf(place).name) as Row);
  }

  sessionsInOrder(range: IndexRange): IndexedSession[] {
    const places = [...this.#heads.values()].map((stored) =>
      placeOfSession(stored.head.sessionId, placeOf(stored).order),
    );
    return page(places, placesOfSessions(range)).map(sessionAt);
  }

  close(): void {
    for (const table of [this.#heads, this.#segments, this.#components, this.#journals, this.#deleted, this.#rows])
      table.clear();
    this.#claims.clear();
  }
}

/** Of these keys, those of a range, in order. */
function page(keys: Iterable<string>, { start, end, limit, without, reverse = false }: KeyRange): string[] {
  const found = [...keys].filter((key) => key !== without && byUtf8(key, start) >= 0 && byUtf8(key, end) < 0);
  found.sort(byUtf8);
  if (reverse) found.reverse();
  return found.slice(0, limit);
}

/** The order LMDB keeps its keys in; JavaScript's own differs beyond the basic plane. */
function byUtf8(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
