import assert from "node:assert/strict";
import { sealEnvelope } from "../../store/index.js";
import { encode } from "../../wire/index.js";
import {
  type Cases,
  commitOf,
  committed,
  entry,
  plain,
  recorded,
  recordOf,
  refusal,
  stateOf,
  type TestedBackend,
  turn,
} from "./samples.js";

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
    assert.deepEqual(
      (await backend.journal("a")).map((row) => ({ ...row, bytes: plain(row.bytes) })),
      entries.map(({ turnId, key, hash, envelope, bytes }, sequence) => ({
        sequence,
        turnId,
        key,
        hash,
        envelope,
        bytes: plain(bytes),
        at: 1_000,
      })),
    );
  },

  // quality §3.3 C: replay mismatch yields structural diff
  async "a replay key recorded for another request is replay_mismatch and says where they differ"({ backend }) {
    const asked = (city: string) => sealEnvelope({ kind: "tool", args: { city, days: [1, 2] } });
    const first = entry("a", "tool:1", asked("Oslo"));
    await recorded(backend, first);
    const before = await stateOf(backend, "a");
    const other = entry("a", "tool:1", asked("Bergen"));
    const error = refusal((await backend.write([recordOf(other)]))[0]);
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
    const results = await backend.write([recordOf(one), recordOf(entry("a", "tool:2")), recordOf(other)]);
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
    const error = refusal((await backend.write([recordOf(entry("a", "tool:1"))]))[0]);
    assert.equal(error.code, "head_conflict");
    assert.deepEqual(error.details, { sessionId: "a", expected: 0, actual: 1 });
    assert.deepEqual(await stateOf(backend, "a"), before);
    assert.equal((await recorded(backend, entry("a", "tool:1", { expectedRevision: 1 }))).replayed, false);
  },

  async "a record meets the head that a commit of its own batch is about to write"({ backend }) {
    const results = await backend.write([
      commitOf(turn("a", 1)),
      recordOf(entry("a", "late")),
      recordOf(entry("a", "next", { expectedRevision: 1 })),
    ]);
    assert.deepEqual(
      results.map(({ ok }) => ok),
      [true, false, true],
    );
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
    const [refused] = await backend.write([commitOf(turn("a", 3, { clearsJournal: true }))]);
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
