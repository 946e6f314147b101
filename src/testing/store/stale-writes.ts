import type { Commit, StoreWrite } from "../../kernel/index.js";
import { rowOf } from "./sample-rows.js";
import { accepted, commitOf, component, entry, recordOf, type TestedBackend, turn } from "./samples.js";

/** A session that moved, as who lost it knows it. */
export interface HeldSession {
  readonly id: string;
  readonly seed: number;
  /** The epoch of who lost it. */
  readonly stale: number;
  /** The revision it was at when it was lost, and is at by now. */
  readonly lostAt: number;
  readonly now: number;
}

/** Whether a session's n-th property is there: every mixture of seven comes up among 100 seeds. */
function has(seed: number, property: number): boolean {
  return ((Math.imul(seed, 0x9e3779b1) >>> (property * 3)) & 1) === 1;
}

/**
 * A session that `first` had and `second` has, in a shape its seed gives: at its first revision or later ones; with or
 * without components, rows, a tenant, turns that wait, a journal of its owner before; and its successor has begun, has
 * recorded, has committed, or has done nothing yet.
 */
export async function prepared(first: TestedBackend, second: TestedBackend, seed: number): Promise<HeldSession> {
  const id = `session ${seed}`;
  const lostAt = seed % 4;
  const one = await first.claim(id, { owner: "first", take: "always" });
  const write = async (backend: TestedBackend, each: StoreWrite) => accepted((await backend.write([each]))[0]);
  const shaped = (revision: number, epoch: number): Commit => {
    const state = component(`state ${seed % 7} ${revision}`);
    const named = has(seed, 1) ? { components: { state: state.hash } } : {};
    const tenant = has(seed, 2) ? { tenant: `tenant ${seed % 3}` } : {};
    return {
      ...turn(id, revision, { components: has(seed, 1) ? [state] : [], head: { ...named, ...tenant } }),
      epoch,
      clearsJournal: true,
      ...(has(seed, 3) && { turnsWait: true }),
      ...(has(seed, 4) && { rows: [rowOf(`${revision}`, "v", { session: id, order: { at: revision } })] }),
    };
  };
  for (let revision = 1; revision <= lostAt; revision++) await write(first, commitOf(shaped(revision, one)));
  const over = { turnId: `t${lostAt + 1}`, expectedRevision: lostAt };
  if (has(seed, 5)) await write(first, recordOf(entry(id, "before", { ...over, epoch: one })));

  const two = await second.claim(id, { owner: "second", take: "always" });
  let now = lostAt;
  const keys = Array.from({ length: seed % 5 }, (_, i) => `tool:${i}`);
  for (const key of keys) await write(second, recordOf(entry(id, key, { ...over, epoch: two })));
  if (has(seed, 6)) {
    await write(second, commitOf(shaped(++now, two)));
    const next = { turnId: `t${now + 1}`, expectedRevision: now, epoch: two };
    if (seed % 2 === 0) await write(second, recordOf(entry(id, "next", next)));
  }
  return { id, seed, stale: one, lostAt, now };
}

/** Everything who lost a session could still send; each as it knows the session, or as the session is by now. */
export function everyStaleWrite({ id, seed, stale, lostAt, now }: HeldSession): Readonly<Record<string, StoreWrite>> {
  const expectedRevision = seed % 2 === 0 ? lostAt : now;
  const epoch = stale;
  const late = component(`late ${seed}`);
  const rows = [rowOf("late", "v", { session: id }), rowOf("late", `${seed}`)];
  const commit = (changes: Partial<Commit>): StoreWrite =>
    commitOf({
      ...turn(id, expectedRevision + 1, { operation: "stale", components: [late] }),
      epoch,
      ...(seed % 3 === 0 && { rows }),
      ...changes,
    });
  const over = { turnId: `t${lostAt + 1}`, expectedRevision, epoch };
  return {
    commit: commit(seed % 5 === 0 ? { turnsWait: true } : {}),
    "commit that clears": commit({ clearsJournal: true, turnsWait: seed % 5 === 0 }),
    record: recordOf(entry(id, "stale", { ...over, ...(seed % 3 === 0 && { rows }) })),
    "record of a known key": recordOf(entry(id, seed % 2 === 0 ? "tool:0" : "before", over)),
    clear: { kind: "clear", sessionId: id, expectedRevision, epoch, ...(seed % 3 === 0 && { rows }) },
    delete: { kind: "delete", sessionId: id, epoch, ...(seed % 2 === 0 && { expectedRevision }) },
    rows: { kind: "rows", changes: rows, owner: { sessionId: id, epoch } },
  };
}
