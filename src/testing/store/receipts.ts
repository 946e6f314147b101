import assert from "node:assert/strict";
import type { StoreBackend } from "../../store/index.js";
import { type Cases, commit, committed, component, plain, refusal, type TestedBackend, turn } from "./samples.js";

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
      assert.notEqual(again, backend as StoreBackend);
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
