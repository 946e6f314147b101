import assert from "node:assert/strict";
import type { StoreWrite, TroupeError } from "../../kernel/index.js";
import { dumpOf } from "./dump.js";
import { bytesOf, rowOf, rowsWrite } from "./sample-rows.js";
import {
  accepted,
  type ConformanceCase,
  casesOver,
  commitOf,
  deleteOf,
  entry,
  recordOf,
  refusal,
  type TestedBackend,
  turn,
  whichAccepted,
} from "./samples.js";
import { everyStaleWrite, type HeldSession, prepared } from "./stale-writes.js";

/** One substrate under test, as two writers see it. */
export interface OwnershipStore {
  /** For a store of one process both are the same backend; a database has two connections. */
  readonly first: TestedBackend;
  readonly second: TestedBackend;
  /** Everything that is stored, byte by byte, so that two answers can be compared. By default what `first` can read. */
  readonly dump?: () => Promise<unknown>;
  /** Closes both and opens what they left behind; absent for a store that keeps nothing. */
  readonly reopen?: () => Promise<TestedBackend>;
  readonly dispose: () => Promise<void> | void;
}

type OwnershipCases = Readonly<Record<string, (store: OwnershipStore) => Promise<void>>>;

const ALWAYS = (owner: string) => ({ owner, take: "always" }) as const;
const FREE = (owner: string) => ({ owner, take: "free" }) as const;

function checkMoved(error: unknown, sessionId: string): void {
  const { code, retryable, details } = error as TroupeError;
  assert.deepEqual({ code, retryable, details }, { code: "session_moved", retryable: true, details: { sessionId } });
}

async function everything({ first, second, dump }: OwnershipStore): Promise<unknown> {
  return { stored: await (dump?.() ?? dumpOf(first)), counts: [{ ...first.writes }, { ...second.writes }] };
}

/** Which of these claims succeed; the others must have been refused because somebody has the session. */
async function epochsOf(claims: readonly (number | Promise<number>)[], sessionId: string): Promise<number[]> {
  const settled = await Promise.allSettled(claims);
  return settled.flatMap((each) => {
    if (each.status === "fulfilled") return [each.value];
    checkMoved(each.reason, sessionId);
    return [];
  });
}

const firstTurn = (sessionId: string, epoch: number, operation = `of ${epoch}`) =>
  commitOf({ ...turn(sessionId, 1, { operation }), epoch });

/** Claims that a store refuses are thrown or rejected alike. */
async function claimed(backend: TestedBackend, ...claim: Parameters<TestedBackend["claim"]>): Promise<number> {
  return backend.claim(...claim);
}

const SESSIONS = 100;

const CASES: OwnershipCases = {
  async "a stale owner's commits, records, clearings, deletions and rows are refused, 100 of 100, and nothing changes"(
    store,
  ) {
    const { first, second } = store;
    const held: HeldSession[] = [];
    for (let seed = 1; seed <= SESSIONS; seed++) held.push(await prepared(first, second, seed));
    const before = await everything(store);
    const refused: Record<string, number> = {};
    for (const session of held) {
      for (const [kind, write] of Object.entries(everyStaleWrite(session))) {
        checkMoved(refusal((await first.write([write]))[0]), session.id);
        refused[kind] = (refused[kind] ?? 0) + 1;
      }
    }
    assert.deepEqual(refused, {
      commit: SESSIONS,
      "commit that clears": SESSIONS,
      record: SESSIONS,
      "record of a known key": SESSIONS,
      clear: SESSIONS,
      delete: SESSIONS,
      rows: SESSIONS,
    });
    assert.deepEqual(await everything(store), before);
  },

  async "a stale owner that gives its turn up leaves its successor's journal, 100 of 100"(store) {
    const { first, second } = store;
    let left = 0;
    for (let n = 0; n < SESSIONS; n++) {
      const id = `s${n}`;
      const stale = await first.claim(id, ALWAYS("first"));
      const over = { expectedRevision: 0 };
      accepted((await first.write([recordOf(entry(id, "start", { ...over, epoch: stale }))]))[0]);
      const epoch = await second.claim(id, ALWAYS("second"));
      const keys = Array.from({ length: 1 + (n % 3) }, (_, i) => `tool:${i}`);
      for (const key of keys) accepted((await second.write([recordOf(entry(id, key, { ...over, epoch }))]))[0]);
      // As a turn does that was refused, cancelled or finished too late.
      const late: StoreWrite[] = [
        { kind: "clear", sessionId: id, ...over, epoch: stale },
        commitOf({ ...turn(id, 1, { operation: "stale", clearsJournal: true }), epoch: stale }),
        { kind: "clear", sessionId: id, ...over, epoch: stale },
      ];
      for (const write of late) checkMoved(refusal((await first.write([write]))[0]), id);
      const journal = await second.journal(id);
      assert.deepEqual(
        journal.map(({ key }) => key),
        ["start", ...keys],
      );
      const done = await second.write([commitOf({ ...turn(id, 1, { clearsJournal: true }), epoch })]);
      assert.deepEqual(accepted(done[0]), { revision: 1, replayed: false });
      assert.deepEqual(await first.journal(id), []);
      left++;
    }
    assert.equal(left, SESSIONS);
  },

  async "of claims made at once the last has the session, and nobody else writes"({ first, second }) {
    for (let round = 0; round < 10; round++) {
      const id = `s${round}`;
      const claims = Array.from({ length: 16 }, (_, i) => claimed(i % 2 === 0 ? first : second, id, ALWAYS(`o${i}`)));
      const epochs = await epochsOf(claims, id);
      assert.equal(new Set(epochs).size, 16);
      const writers = epochs.map(
        async (epoch, i) => (await (i % 2 === 0 ? second : first).write([firstTurn(id, epoch)]))[0],
      );
      const results = await Promise.all(writers);
      const winners = epochs.filter((_, i) => results[i]?.ok === true);
      assert.deepEqual(winners, [Math.max(...epochs)]);
      for (const result of results) if (result?.ok === false) checkMoved(result.error, id);
      assert.equal((await first.head(id))?.operation, `of ${winners[0]}`);
    }
  },

  async "of claims of a free session made at once exactly one succeeds"({ first, second }) {
    for (let round = 0; round < 10; round++) {
      const id = `s${round}`;
      const claims = Array.from({ length: 16 }, (_, i) => claimed(i % 2 === 0 ? first : second, id, FREE(`o${i}`)));
      const [epoch, ...others] = await epochsOf(claims, id);
      assert.ok(epoch !== undefined);
      assert.deepEqual(others, []);
      accepted((await second.write([firstTurn(id, epoch)]))[0]);
    }
  },

  async "epochs grow from claim to claim, whoever claims"({ first, second }) {
    let last = 0;
    for (const [backend, owner] of [
      [first, "one"],
      [second, "two"],
      [second, "two"],
      [first, "one"],
    ] as const) {
      const epoch = await backend.claim("a", ALWAYS(owner));
      assert.ok(epoch > last && Number.isSafeInteger(epoch));
      last = epoch;
    }
  },

  async "an owner may claim its session again, and what it sent under its claim before is refused"({ first }) {
    const before = await first.claim("a", ALWAYS("one"));
    const epoch = await first.claim("a", FREE("one"));
    checkMoved(refusal((await first.write([firstTurn("a", before)]))[0]), "a");
    accepted((await first.write([firstTurn("a", epoch)]))[0]);
  },

  async "a session somebody alive has is not free, until it is released or its owner leaves"({ first, second }) {
    const one = await first.claim("a", ALWAYS("one"));
    await first.claim("b", ALWAYS("one"));
    assert.deepEqual([await second.isOwned("a"), await second.isOwned("b")], [true, true]);
    for (const id of ["a", "b"]) assert.deepEqual(await epochsOf([claimed(second, id, FREE("two"))], id), []);
    // A refused claim takes nothing away.
    accepted((await first.write([firstTurn("a", one)]))[0]);
    await first.release("a", one);
    assert.deepEqual([await second.isOwned("a"), await second.isOwned("b")], [false, true]);
    assert.equal((await epochsOf([claimed(second, "a", FREE("two"))], "a")).length, 1);
    await first.leave("one");
    assert.deepEqual([await second.isOwned("a"), await second.isOwned("b")], [true, false]);
    assert.equal((await epochsOf([claimed(second, "b", FREE("two"))], "b")).length, 1);
  },

  async "who released a session does not write to it, and who lost it releases nothing"(store) {
    const { first, second } = store;
    const one = await first.claim("a", ALWAYS("one"));
    await first.release("a", one);
    const before = await everything(store);
    checkMoved(refusal((await first.write([firstTurn("a", one)]))[0]), "a");
    assert.deepEqual(await everything(store), before);
    const lost = await first.claim("a", ALWAYS("one"));
    const two = await second.claim("a", ALWAYS("two"));
    await first.release("a", lost);
    assert.equal(await first.isOwned("a"), true);
    accepted((await second.write([firstTurn("a", two)]))[0]);
  },

  async "an owner that left is refused as soon as somebody else has its session"({ first, second }) {
    const one = await first.claim("a", ALWAYS("one"));
    await second.leave("one");
    const two = await second.claim("a", FREE("two"));
    checkMoved(refusal((await first.write([firstTurn("a", one)]))[0]), "a");
    accepted((await second.write([firstTurn("a", two)]))[0]);
  },

  async "an epoch nobody was given writes nothing"(store) {
    const { first } = store;
    const before = await everything(store);
    for (const epoch of [0, 1, 2 ** 40]) checkMoved(refusal((await first.write([firstTurn("a", epoch)]))[0]), "a");
    const real = await first.claim("a", ALWAYS("one"));
    for (const epoch of [real - 1, real + 1]) checkMoved(refusal((await first.write([firstTurn("a", epoch)]))[0]), "a");
    assert.deepEqual(await everything(store), before);
  },

  async "a claim takes its own session and no other"({ first, second }) {
    const [one, other] = [await first.claim("a", ALWAYS("one")), await first.claim("a/b", ALWAYS("one"))];
    await second.claim("a", ALWAYS("two"));
    const results = await first.write([firstTurn("a", one), firstTurn("a/b", other)]);
    assert.deepEqual(whichAccepted(results), [false, true]);
    checkMoved(refusal(results[0]), "a");
  },

  async "an operation that was stored before its session moved is answered, also when more followed"({
    first,
    second,
  }) {
    const one = await first.claim("a", ALWAYS("one"));
    const write = firstTurn("a", one, "mine");
    accepted((await first.write([write]))[0]);
    const two = await second.claim("a", ALWAYS("two"));
    assert.deepEqual(accepted((await first.write([write]))[0]), { revision: 1, replayed: true });
    accepted((await second.write([commitOf({ ...turn("a", 2), epoch: two })]))[0]);
    assert.deepEqual(accepted((await first.write([write]))[0]), { revision: 1, replayed: true });
    const next = commitOf({ ...turn("a", 3, { operation: "next" }), epoch: one });
    checkMoved(refusal((await first.write([next]))[0]), "a");
  },

  async "a session that is deleted while somebody has it does not come back"(store) {
    const { first, second } = store;
    const one = await first.claim("a", ALWAYS("one"));
    const rows = [rowOf("1", "one", { session: "a", order: { at: 1 } })];
    accepted((await first.write([commitOf({ ...turn("a", 1), epoch: one, rows })]))[0]);
    const record = (key: string) => recordOf(entry("a", key, { expectedRevision: 1, epoch: one }));
    accepted((await first.write([record("tool:1")]))[0]);
    const two = await second.claim("a", ALWAYS("two"));
    accepted((await second.write([{ ...(deleteOf("a") as Extract<StoreWrite, { kind: "delete" }>), epoch: two }]))[0]);
    const before = await everything(store);
    for (const [code, write] of [
      ["session_deleted", commitOf({ ...turn("a", 2), epoch: one })],
      ["session_deleted", commitOf({ ...turn("a", 1, { operation: "anew" }), epoch: two })],
      ["session_deleted", record("tool:2")],
      ["session_deleted", rowsWrite(...rows)],
      ["session_moved", { kind: "clear", sessionId: "a", expectedRevision: 1, epoch: one }],
      ["session_moved", { kind: "delete", sessionId: "a", epoch: one }],
    ] as const) {
      for (const backend of [first, second]) {
        assert.equal(refusal((await backend.write([write]))[0]).code, code, write.kind);
      }
    }
    // Nor for who claims it once more.
    const three = await first.claim("a", ALWAYS("three"));
    const anew = firstTurn("a", three, "anew");
    assert.equal(refusal((await first.write([anew]))[0]).code, "session_deleted");
    assert.deepEqual(await everything(store), before);
    assert.equal(await first.head("a"), undefined);
    assert.deepEqual([await first.journal("a"), await first.rowsInOrder({ table: "tasks", limit: 9 })], [[], []]);
    assert.deepEqual(await first.keys("rows", undefined, 9), []);
  },

  async "a write that meets a claim is stored before it or not at all"({ first, second }) {
    for (let round = 0; round < 40; round++) {
      const id = `s${round}`;
      const one = await first.claim(id, ALWAYS("one"));
      const write = async () => {
        const rows = [rowOf("1", "one", { session: id })];
        return (await first.write([commitOf({ ...turn(id, 1), epoch: one, rows })]))[0];
      };
      const claim = async () => {
        await second.claim(id, ALWAYS("two"));
        // What the successor finds now is what it goes on from: nothing of another may come behind it.
        return (await second.head(id))?.revision;
      };
      const early = round % 2 === 0 ? write() : undefined;
      const claiming = claim();
      const [result, found] = [await (early ?? write()), await claiming];
      if (result?.ok === false) checkMoved(result.error, id);
      const stored = result?.ok === true;
      assert.equal(found, stored ? 1 : undefined);
      assert.equal((await first.head(id))?.revision, stored ? 1 : undefined);
      assert.equal((await first.row({ table: "tasks", key: "1", session: id }))?.version, stored ? 1 : undefined);
    }
  },

  async "claiming and releasing store nothing, and a session nobody stored leaves nothing"(store) {
    const { first, second, reopen } = store;
    const empty = await everything(store);
    for (const id of ["a", "b", "c"]) {
      const epoch = await first.claim(id, ALWAYS("one"));
      await second.claim(id, ALWAYS("two"));
      await first.release(id, epoch);
      const own = await second.claim(id, FREE("two"));
      if (id === "b") await second.release(id, own);
    }
    await first.leave("two");
    assert.deepEqual(await everything(store), empty);
    const again = await reopen?.();
    if (again === undefined) return;
    assert.deepEqual([await again.sessionCount(), await again.keys("heads", undefined, 9)], [0, []]);
    assert.equal(await again.isOwned("a"), false);
  },

  async "epochs go on growing when a store is opened again, and those of the opening before are refused"(store) {
    const { first, second, reopen } = store;
    if (reopen === undefined) return;
    const one = await first.claim("a", ALWAYS("one"));
    accepted((await first.write([firstTurn("a", one)]))[0]);
    const never = await second.claim("b", ALWAYS("two"));
    const stale = (epoch: number) => [
      commitOf({ ...turn("a", 2), epoch }),
      recordOf(entry("a", "tool:1", { expectedRevision: 1, epoch })),
      { kind: "clear", sessionId: "a", expectedRevision: 1, epoch } as const,
      { kind: "delete", sessionId: "a", epoch } as const,
      {
        kind: "rows",
        changes: [{ table: "t", key: "1", value: bytesOf("v") }],
        owner: { sessionId: "a", epoch },
      } as const,
    ];
    let last = never;
    for (let opening = 0; opening < 3; opening++) {
      const again: TestedBackend = await reopen();
      assert.equal(await again.isOwned("a"), false);
      const before = await dumpOf(again);
      for (const epoch of [one, last]) {
        for (const result of await again.write(stale(epoch))) checkMoved(refusal(result), "a");
      }
      const epoch = await again.claim("a", FREE("three"));
      assert.ok(epoch > last, "an epoch comes never again");
      for (const result of await again.write(stale(one))) checkMoved(refusal(result), "a");
      assert.deepEqual(await dumpOf(again), before);
      last = epoch;
      accepted((await again.write([recordOf(entry("a", `${opening}`, { expectedRevision: 1, epoch }))]))[0]);
    }
  },
};

/**
 * What every store must do for a session to have one owner, as cases for any test runner: who lost a session changes
 * nothing of it any more. `open` is called once per case and gives two handles on one empty store.
 *
 * @example
 * for (const { name, run } of storeOwnership("my store", openMineTwice)) test(name, run);
 */
export function storeOwnership(name: string, open: () => Promise<OwnershipStore>): ConformanceCase[] {
  return casesOver(name, CASES, open);
}
