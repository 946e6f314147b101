import assert from "node:assert/strict";
import { sealEnvelope } from "../../store/index.js";
import { encode } from "../../wire/index.js";
import {
  type Cases,
  commit,
  commitOf,
  committed,
  component,
  entry,
  plain,
  recorded,
  recordOf,
  refusal,
  stateOf,
  type TestedBackend,
  turn,
  whichAccepted,
  written,
} from "./samples.js";

/** Operations that are repeated: because an answer was lost, or the process was. */
export const RECEIPTS: Cases = {
  // quality §3.3 A: final commit stamp idempotent; B: recorded commit replay idempotent
  async "repeating an operation is answered and not repeated"({ backend }) {
    await committed(backend, turn("a", 1));
    assert.deepEqual(await committed(backend, turn("a", 1)), { revision: 1, replayed: true });
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 2 });
  },

  // quality §3.3 A: two concurrent identical appends apply once
  async "the same operation twice in one batch is written once"({ backend }) {
    assert.deepEqual(await commit(backend, turn("a", 1), turn("a", 1)), [
      { ok: true, receipt: { revision: 1, replayed: false } },
      { ok: true, receipt: { revision: 1, replayed: true } },
    ]);
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 2 });
  },

  // quality §3.3 A: append receipt replays after head advanced
  async "an operation that later ones have followed is answered with its own revision"({ backend }) {
    for (let revision = 1; revision <= 5; revision++) await committed(backend, turn("a", revision));
    assert.deepEqual(await committed(backend, turn("a", 2)), { revision: 2, replayed: true });
    // Whoever reloaded before trying again expects another revision by now.
    const again = turn("a", 6, { operation: "a/3" });
    assert.deepEqual(await committed(backend, again), { revision: 3, replayed: true });
    assert.equal((await backend.head("a"))?.revision, 5);
  },

  async "the last sixteen operations have receipts; older ones are conflicts"({ backend }) {
    for (let revision = 1; revision <= 17; revision++) await committed(backend, turn("a", revision));
    assert.deepEqual(await committed(backend, turn("a", 2)), { revision: 2, replayed: true });
    assert.equal(refusal((await commit(backend, turn("a", 1)))[0]).code, "session_exists");
    await committed(backend, turn("a", 18));
    assert.equal(refusal((await commit(backend, turn("a", 2)))[0]).code, "head_conflict");
  },

  // quality §3.3 A: changed content under same receipt refused; changed hash conflicts
  async "an operation repeated with another intent is refused"({ backend }) {
    await committed(backend, turn("a", 1, { intent: "append hello" }));
    await committed(backend, turn("a", 2, { intent: "append more" }));
    const error = refusal((await commit(backend, turn("a", 1, { intent: "append something else" })))[0]);
    assert.equal(error.code, "operation_conflict");
    assert.equal(error.retryable, false);
    assert.deepEqual(error.details, { sessionId: "a", operation: "a/1" });
    assert.deepEqual(await committed(backend, turn("a", 1, { intent: "append hello" })), {
      revision: 1,
      replayed: true,
    });
    assert.deepEqual({ ...backend.writes }, { transactions: 2, records: 4 });
  },

  async "operations of different sessions have nothing to do with each other"({ backend }) {
    await committed(backend, turn("a", 1, { operation: "same" }));
    assert.deepEqual(await committed(backend, turn("b", 1, { operation: "same" })), { revision: 1, replayed: false });
  },

  // quality §3.3 A: receipt survives reopen, everything survives reopen, component refs survive two cold reopens
  async "what was committed is there after reopening, receipts included"({ backend, reopen }) {
    if (reopen === undefined) return;
    const state = component({ calls: 7 });
    const last = turn("a", 2, { components: [state], head: { components: { tools: state.hash } } });
    await commit(backend, turn("a", 1), turn("b", 1));
    await committed(backend, last);
    await checkReopened(await reopen());
    await checkReopened(await reopen());

    async function checkReopened(again: TestedBackend): Promise<void> {
      assert.notEqual(again, backend);
      assert.deepEqual([...(await again.sessionIds())], ["a", "b"]);
      assert.deepEqual(await again.head("a"), last.head);
      assert.deepEqual(plain(await again.component(state.hash)), plain(state.bytes));
      assert.deepEqual(await committed(again, last), { revision: 2, replayed: true });
      assert.deepEqual(await committed(again, turn("a", 1)), { revision: 1, replayed: true });
      assert.deepEqual({ ...again.writes }, { transactions: 0, records: 0 });
    }
  },

  async "a session goes on after reopening"({ backend, reopen }) {
    if (reopen === undefined) return;
    await committed(backend, turn("a", 1));
    assert.deepEqual(await committed(await reopen(), turn("a", 2)), { revision: 2, replayed: false });
  },
};

/** What a running turn has recorded, so that it is not done again. */
export const JOURNALS: Cases = {
  // quality §3.3 C: journalled effect replays without running
  async "the first outcome of a replay key is kept, and given to whoever records it again"({ backend }) {
    const first = entry("a", "tool:1");
    assert.deepEqual(await recorded(backend, first), { replayed: false });
    const again = await recorded(backend, { ...first, bytes: encode("a second run") });
    assert.equal(again.replayed, true);
    assert.deepEqual(plain(again.replayed ? again.bytes : undefined), plain(first.bytes));
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 1 });
  },

  async "rows come back as they were recorded, in order"({ backend }) {
    const entries = ["model:1", "tool:1", "tool:2"].map((key) => entry("a", key));
    for (const each of entries) await recorded(backend, each);
    const rows = await backend.journal("a");
    for (const { at } of rows) assert.ok(Number.isSafeInteger(at) && at > 0, "the store says when it was recorded");
    assert.deepEqual(
      rows.map(({ at: _, ...row }) => ({ ...row, bytes: plain(row.bytes) })),
      entries.map(({ turnId, key, hash, envelope, bytes }, sequence) => ({
        sequence,
        turnId,
        key,
        hash,
        envelope,
        bytes: plain(bytes),
      })),
    );
  },

  async "a journal of forty-one rows comes back in order, and each of its keys is answered from it"({
    backend,
    reopen,
  }) {
    const key = (n: number) => `tool:${n}`;
    const outcome = (n: number) => encode({ nth: n, text: "x".repeat(n * 10) });
    const row = (n: number, bytes = outcome(n)) => entry("a", key(n), { bytes });
    const all = Array.from({ length: 41 }, (_, n) => n);
    // One by one, and then as many in a batch.
    for (const n of all.slice(0, 20)) await recorded(backend, row(n));
    assert.ok(
      whichAccepted(
        await written(
          backend,
          all.slice(20).map((n) => recordOf(row(n))),
        ),
      ).every(Boolean),
    );
    await check(backend);
    if (reopen !== undefined) await check(await reopen());

    async function check(from: TestedBackend): Promise<void> {
      const rows = await from.journal("a");
      assert.deepEqual(
        rows.map(({ sequence, key }) => [sequence, key]),
        all.map((n) => [n, key(n)]),
      );
      for (const n of [...all].reverse()) {
        const again = await recorded(from, row(n, encode("another run")));
        assert.deepEqual(plain(again.replayed ? again.bytes : undefined), plain(outcome(n)));
      }
      assert.equal((await from.journal("a")).length, 41);
    }
  },

  async "clearing a long journal leaves none of its rows"({ backend }) {
    for (let n = 0; n < 41; n++) await recorded(backend, entry("a", `tool:${n}`));
    await recorded(backend, entry("a0", "of another"));
    await committed(backend, turn("a", 1, { clearsJournal: true }));
    assert.deepEqual(await backend.keys("journals", undefined, 9), ["a0"]);
    await recorded(backend, entry("a", "next", { expectedRevision: 1 }));
    const rows = await backend.journal("a");
    assert.deepEqual(
      rows.map(({ sequence, key }) => [sequence, key]),
      [[0, "next"]],
    );
  },

  // quality §3.3 C: replay mismatch yields structural diff
  async "a replay key recorded for another request is replay_mismatch and says where they differ"({ backend }) {
    const asked = (city: string) => sealEnvelope({ kind: "tool", args: { city, days: [1, 2] } });
    const first = entry("a", "tool:1", asked("Oslo"));
    await recorded(backend, first);
    const before = await stateOf(backend, "a");
    const other = entry("a", "tool:1", asked("Bergen"));
    const error = refusal((await written(backend, [recordOf(other)]))[0]);
    assert.equal(error.code, "replay_mismatch");
    assert.equal(error.retryable, false);
    assert.deepEqual(error.details, {
      sessionId: "a",
      turnId: "t1",
      key: "tool:1",
      recorded: first.hash,
      given: other.hash,
      paths: ["$.args.city"],
    });
    assert.deepEqual(await stateOf(backend, "a"), before);
  },

  // quality §3.3 C: concurrent recorded effects replay by key, not order
  async "of two records of one key in one batch the first counts, and keys are found in any order"({ backend }) {
    const one = entry("a", "tool:1");
    const other = entry("a", "tool:1", { bytes: encode("slower") });
    const results = await written(backend, [recordOf(one), recordOf(entry("a", "tool:2")), recordOf(other)]);
    assert.deepEqual(
      results.map((result) => result.ok && "replayed" in result.receipt && result.receipt.replayed),
      [false, false, true],
    );
    assert.deepEqual(await keys(backend, "a"), ["tool:1", "tool:2"]);
    assert.equal((await recorded(backend, entry("a", "tool:2"))).replayed, true);
    assert.equal((await recorded(backend, entry("a", "tool:1"))).replayed, true);
  },

  async "the same key in another turn or another session is another row"({ backend }) {
    await recorded(backend, entry("a", "tool:1"));
    assert.equal((await recorded(backend, entry("a", "tool:1", { turnId: "t2" }))).replayed, false);
    assert.equal((await recorded(backend, entry("b", "tool:1"))).replayed, false);
    assert.deepEqual(await keys(backend, "a"), ["tool:1", "tool:1"]);
    assert.deepEqual(await keys(backend, "b"), ["tool:1"]);
  },

  async "journals of sessions with similar names are kept apart"({ backend }) {
    const ids = ["a", "a0", "a ", "a~", "aé", "a\u00a0", "a@1", "b"];
    for (const id of ids) await recorded(backend, entry(id, `of ${id}`));
    for (const id of ids) assert.deepEqual(await keys(backend, id), [`of ${id}`]);
  },

  // quality §3.3 C: lease fencing, by the head's revision; A: stale head mutates nothing
  async "a worker whose session moved on without it is refused"({ backend }) {
    await committed(backend, turn("a", 1));
    const before = await stateOf(backend, "a");
    const error = refusal((await written(backend, [recordOf(entry("a", "tool:1"))]))[0]);
    assert.equal(error.code, "head_conflict");
    assert.deepEqual(error.details, { sessionId: "a", expected: 0, actual: 1 });
    assert.deepEqual(await stateOf(backend, "a"), before);
    assert.equal((await recorded(backend, entry("a", "tool:1", { expectedRevision: 1 }))).replayed, false);
  },

  async "a record meets the head that a commit of its own batch is about to write"({ backend }) {
    const results = await written(backend, [
      commitOf(turn("a", 1)),
      recordOf(entry("a", "late")),
      recordOf(entry("a", "next", { expectedRevision: 1 })),
    ]);
    assert.deepEqual(whichAccepted(results), [true, false, true]);
    assert.deepEqual(await keys(backend, "a"), ["next"]);
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 3 });
  },

  // quality §3.3 C: retire session journal exactly
  async "a commit that clears the journal clears its session's and no other, in the same write"({ backend }) {
    for (const key of ["model:1", "tool:1"]) await recorded(backend, entry("a", key));
    await recorded(backend, entry("b", "tool:1"));
    await committed(backend, turn("a", 1, { clearsJournal: true }));
    assert.deepEqual(await backend.journal("a"), []);
    assert.deepEqual(await keys(backend, "b"), ["tool:1"]);
    await recorded(backend, entry("a", "model:1", { expectedRevision: 1 }));
    assert.deepEqual(
      (await backend.journal("a")).map(({ sequence }) => sequence),
      [0],
    );
  },

  async "a commit that says nothing of the journal leaves it"({ backend }) {
    await recorded(backend, entry("a", "tool:1"));
    await committed(backend, turn("a", 1));
    assert.deepEqual(await keys(backend, "a"), ["tool:1"]);
  },

  // quality §3.3 B: atomic commit settles claim once
  async "a refused or replayed commit clears nothing"({ backend }) {
    await committed(backend, turn("a", 1));
    await recorded(backend, entry("a", "tool:1", { expectedRevision: 1 }));
    assert.deepEqual(await committed(backend, turn("a", 1, { clearsJournal: true })), { revision: 1, replayed: true });
    const [refused] = await written(backend, [commitOf(turn("a", 3, { clearsJournal: true }))]);
    assert.equal(refusal(refused).code, "head_conflict");
    assert.deepEqual(await keys(backend, "a"), ["tool:1"]);
  },

  // quality §3.3 B: checkpoint survives before settlement
  async "a journal is there after reopening, and is gone on with"({ backend, reopen }) {
    if (reopen === undefined) return;
    for (const key of ["model:1", "tool:1"]) await recorded(backend, entry("a", key));
    const again = await reopen();
    assert.deepEqual(await keys(again, "a"), ["model:1", "tool:1"]);
    assert.equal((await recorded(again, entry("a", "tool:1"))).replayed, true);
    await recorded(again, entry("a", "tool:2"));
    await committed(again, turn("a", 1, { clearsJournal: true }));
    assert.deepEqual(await (await reopen()).journal("a"), []);
  },
};

async function keys(backend: TestedBackend, sessionId: string): Promise<string[]> {
  return (await backend.journal(sessionId)).map(({ key }) => key);
}
