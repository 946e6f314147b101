import { setImmediate as loopTurn } from "node:timers/promises";
import { type BackendAtOnce, openMemory, type ReaderFromAfar, type StoreBackend } from "../../src/store/index.js";

export interface LaterOptions {
  /** The same seed gives the same waits. */
  readonly seed: number;
  /** What keeps everything; two handles may share it. */
  readonly backend?: BackendAtOnce;
  /** An answer comes up to so many turns of the loop late. */
  readonly turns?: number;
}

/** A backend that answers later, and says what it was asked. */
export type LaterBackend = StoreBackend &
  ReaderFromAfar & {
    /** What it was asked, in the order of the asking. */
    readonly asked: string[];
  };

/**
 * A store as one on another machine would be: every answer takes some turns of the loop, on its way there and on its way
 * back, so answers overtake each other and what was asked first may be done last. Which, the seed says.
 */
export function openLater({ seed, backend = openMemory(), turns = 4 }: LaterOptions): LaterBackend {
  const random = seeded(seed);
  const asked: string[] = [];
  const wait = async () => {
    for (let left = Math.floor(random() * (turns + 1)); left > 0; left--) await loopTurn();
  };
  const later =
    <A extends readonly unknown[], R>(name: string, run: (...asked: A) => R) =>
    async (...given: A): Promise<R> => {
      asked.push(name);
      await wait();
      try {
        return run(...given);
      } finally {
        await wait();
      }
    };
  return {
    asked,
    writes: backend.writes,
    claim: later("claim", (id, claim) => backend.claim(id, claim)),
    release: later("release", (id, epoch) => backend.release(id, epoch)),
    leave: later("leave", (owner) => backend.leave(owner)),
    isOwned: later("isOwned", (id) => backend.isOwned(id)),
    write: later("write", (batch) => backend.write(batch)),
    keys: later("keys", (table, after, limit) => backend.keys(table, after, limit)),
    close: later("close", () => backend.close()),
    head: later("head", (id) => backend.head(id)),
    storedHead: later("storedHead", (id) => backend.storedHead(id)),
    segment: later("segment", (id) => backend.segment(id)),
    component: later("component", (hash) => backend.component(hash)),
    componentSize: later("componentSize", (hash) => backend.componentSize(hash)),
    journal: later("journal", (id) => backend.journal(id)),
    isDeleted: later("isDeleted", (id) => backend.isDeleted(id)),
    sessionIds: later("sessionIds", () => backend.sessionIds()),
    sessionCount: later("sessionCount", () => backend.sessionCount()),
    children: later("children", (id) => backend.children(id)),
    row: later("row", (name) => backend.row(name)),
    rows: later("rows", (range) => backend.rows(range)),
    rowsInOrder: later("rowsInOrder", (range) => backend.rowsInOrder(range)),
    sessionsInOrder: later("sessionsInOrder", (range) => backend.sessionsInOrder(range)),
    segmentRun: later("segmentRun", (id: string, limit: number) => segmentRun(backend, id, limit)),
    components: later("components", (hashes: readonly string[]) => components(backend, hashes)),
  };
}

function segmentRun(backend: BackendAtOnce, id: string, limit: number): { id: string; bytes: Uint8Array }[] {
  if (backend.segment(id) === undefined) return [];
  const run: { id: string; bytes: Uint8Array }[] = [];
  const at = id.lastIndexOf("@");
  for (let revision = Number(id.slice(at + 1)); revision > 0 && run.length < limit; revision--) {
    const each = `${id.slice(0, at)}@${revision}`;
    const bytes = backend.segment(each);
    if (bytes !== undefined) run.push({ id: each, bytes });
  }
  return run;
}

function components(backend: BackendAtOnce, hashes: readonly string[]): Map<string, Uint8Array> {
  const found = new Map<string, Uint8Array>();
  for (const hash of hashes) {
    const bytes = backend.component(hash);
    if (bytes !== undefined) found.set(hash, bytes);
  }
  return found;
}

/** Numbers from 0 to 1, the same ones for the same seed. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
