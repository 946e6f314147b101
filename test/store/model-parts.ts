import { expect } from "vitest";
import type { RowChange, StoreWrite } from "../../src/kernel/index.js";
import type { BackendAtOnce } from "../../src/store/index.js";

/** Who has which session, in the simplest words: two owners at a time, each of which may go and come back as another. */
export class ModelOwners {
  readonly #names = ["a1", "b1"];
  readonly #owners = new Map<string, { readonly owner: string; readonly epoch: number }>();
  readonly #gone = new Set<string>();
  /** Epochs that were given and are nobody's any more. */
  readonly lost: { readonly sessionId: string; readonly epoch: number }[] = [];
  #last = 0;

  owner(pick: number): string {
    return this.#names[pick % 2] as string;
  }

  isOwned(sessionId: string): boolean {
    const has = this.#owners.get(sessionId);
    return has !== undefined && !this.#gone.has(has.owner);
  }

  isOf(sessionId: string, owner: string): boolean {
    return this.#owners.get(sessionId)?.owner === owner;
  }

  /** What the session's writes carry now, if it is somebody's. */
  epoch(sessionId: string): number | undefined {
    return this.#owners.get(sessionId)?.epoch;
  }

  claimed(sessionId: string, owner: string, epoch: number): void {
    expect(epoch).toBeGreaterThan(this.#last);
    this.#last = epoch;
    this.#lose(sessionId);
    this.#owners.set(sessionId, { owner, epoch });
  }

  released(sessionId: string): void {
    this.#lose(sessionId);
  }

  /** Gives the name of who is gone; another one comes in its place. */
  left(pick: number): string {
    const name = this.owner(pick);
    this.#gone.add(name);
    this.#names[pick % 2] = `${name[0]}${Number(name.slice(1)) + 1}`;
    return name;
  }

  reopened(): void {
    for (const sessionId of [...this.#owners.keys()]) this.#lose(sessionId);
  }

  #lose(sessionId: string): void {
    const had = this.#owners.get(sessionId);
    if (had !== undefined) this.lost.push({ sessionId, epoch: had.epoch });
    this.#owners.delete(sessionId);
  }

  check(backend: BackendAtOnce, sessions: Iterable<string>): void {
    for (const id of sessions) expect([id, backend.isOwned(id)]).toEqual([id, this.isOwned(id)]);
  }
}

/** Every kind of write that who lost a session might still send. */
export function lateWrite({ sessionId, epoch }: { sessionId: string; epoch: number }, revision: number, pick: number) {
  const writes: readonly StoreWrite[] = [
    { kind: "clear", sessionId, expectedRevision: revision, epoch },
    { kind: "delete", sessionId, epoch },
    { kind: "rows", changes: [changeOf(0, sessionId, pick, "late")], owner: { sessionId, epoch } },
  ];
  return writes[pick % writes.length] as StoreWrite;
}

interface ModelRow {
  readonly value: string;
  readonly version: number;
  readonly order: RowChange["order"];
}

const TABLES = ["tasks", "waits"] as const;
const OWNERS = [undefined, "o"] as const;

/** Rows of two tables, of sessions and of nobody. */
export class ModelRows {
  /** By table, session and key. */
  readonly #rows = new Map<string, ModelRow>();

  /** A change over the version that is there, or over another one. */
  change(session: string | undefined, pick: number, next: number, { wrong = false } = {}): RowChange {
    const change = changeOf(pick, session, next, `value ${next}`);
    const version = this.#rows.get(place(change))?.version ?? 0;
    if (wrong) return { ...change, expectedVersion: version + 1 + (pick % 2) };
    return pick % 3 === 0 ? change : { ...change, expectedVersion: version };
  }

  /** What the store should have after a change; gives the version it should say. */
  changed(change: RowChange): number {
    const { value, order } = change;
    if (value === null) {
      this.#rows.delete(place(change));
      return 0;
    }
    const version = (this.#rows.get(place(change))?.version ?? 0) + 1;
    this.#rows.set(place(change), { value: Buffer.from(value).toString(), version, order });
    return version;
  }

  deleted(session: string): void {
    for (const each of [...this.#rows.keys()]) {
      if (JSON.parse(each)[1] === session) this.#rows.delete(each);
    }
  }

  check(backend: BackendAtOnce, sessions: Iterable<string>): void {
    const found = new Map<string, ModelRow>();
    for (const session of [undefined, ...sessions]) {
      for (const table of TABLES) {
        for (const row of backend.rows({ table, ...(session !== undefined && { session }), limit: 1_000 })) {
          const { value, version, order } = row;
          found.set(place(row), { value: Buffer.from(value).toString(), version, order });
        }
      }
    }
    expect(sorted(found)).toEqual(sorted(this.#rows));
    expect(backend.keys("rows", undefined, 1_000)).toHaveLength(this.#rows.size);
    for (const table of TABLES) for (const owner of OWNERS) this.#checkOrder(backend, table, owner);
  }

  #checkOrder(backend: BackendAtOnce, table: string, owner: string | undefined): void {
    const found = backend.rowsInOrder({ table, ...(owner !== undefined && { owner }), limit: 1_000 });
    const times = found.map(({ order }) => order?.at ?? -1);
    expect(times).toEqual([...times].sort((a, b) => a - b));
    const expected = [...this.#rows].filter(
      ([name, { order }]) => order !== undefined && order.owner === owner && JSON.parse(name)[0] === table,
    );
    expect(found.map(place).sort()).toEqual(expected.map(([name]) => name).sort());
    const back = backend.rowsInOrder({ table, ...(owner !== undefined && { owner }), limit: 1_000, reverse: true });
    expect(back.map(place).reverse()).toEqual(found.map(place));
  }
}

function changeOf(pick: number, session: string | undefined, next: number, value: string): RowChange {
  const owner = OWNERS[next % OWNERS.length];
  const order = pick % 4 === 3 ? undefined : { at: next % 7, ...(owner !== undefined && { owner }) };
  return {
    table: TABLES[pick % TABLES.length] as string,
    key: `k${pick % 3}`,
    value: pick % 5 === 4 ? null : Buffer.from(value),
    ...(session !== undefined && { session }),
    ...(order !== undefined && { order }),
  };
}

function place({ table, session, key }: { table: string; session?: string; key: string }): string {
  return JSON.stringify([table, session ?? null, key]);
}

function sorted(rows: ReadonlyMap<string, ModelRow>): unknown[] {
  return [...rows].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, row]) => [name, { ...row }]);
}
