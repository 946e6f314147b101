import assert from "node:assert/strict";
import {
  completionKeyOf,
  type JournalClearing,
  type PendingCall,
  type RowChange,
  type StoreWrite,
} from "../../kernel/index.js";
import { answerKeysOf, listWaiting, type PendingRequest, rowsOfCall } from "../../store/index.js";
import { changedRows } from "./sample-rows.js";
import {
  type Cases,
  commitOf,
  committed,
  deleteOf,
  entry,
  fork,
  recorded,
  recordOf,
  refusal,
  type TestedBackend,
  turn,
  UNCLAIMED,
  whichAccepted,
  written,
} from "./samples.js";

const NOW = 1_700_000_000_000;

/** A call that waits for a yes. */
function call(sessionId: string, callId: string, changes: Partial<PendingCall> = {}): PendingCall {
  const turnId = "t1";
  return {
    key: completionKeyOf(sessionId, turnId, callId),
    sessionId,
    turnId,
    callId,
    toolName: "pay",
    args: { amount: 5 },
    announcement: { kind: "approval", value: "May I?" },
    since: NOW,
    ...changes,
  };
}

/** The row of the journal that waits, with those the call is found by. */
const begins = (waiting: PendingCall) =>
  entry(waiting.sessionId, `approval:0:${waiting.callId}:1`, { rows: rowsOfCall(waiting) });

const removalOf = (waiting: PendingCall): readonly RowChange[] =>
  rowsOfCall(waiting).map(({ table, session, key }) => ({
    table,
    key,
    value: null,
    ...(session !== undefined && { session }),
  }));

/** The answer, with which the call waits no more. */
const answers = (waiting: PendingCall) =>
  entry(waiting.sessionId, answerKeysOf(waiting.sessionId, waiting.turnId, waiting.callId)[0] as string, {
    rows: removalOf(waiting),
  });

async function pendingIn(backend: TestedBackend, request: PendingRequest = {}): Promise<string[]> {
  return (await listWaiting(backend, request)).calls.map(({ sessionId, callId }) => `${sessionId} ${callId}`);
}

async function inPages(backend: TestedBackend, request: PendingRequest, limit: number): Promise<string[]> {
  const found: string[] = [];
  for (let after: string | undefined; ; ) {
    const { calls, next } = await listWaiting(backend, { ...request, after, limit });
    assert.ok(calls.length <= limit, "a page has no more than was asked for");
    found.push(...calls.map(({ sessionId, callId }) => `${sessionId} ${callId}`));
    if (next === null) return found;
    after = next;
  }
}

/** Every list a call of tenant acme may be in. */
async function everywhere(backend: TestedBackend, sessionId: string): Promise<readonly string[][]> {
  const requests = [{}, { sessionId }, { tenant: "acme" }, { sessionId, tenant: "acme" }];
  return Promise.all(requests.map((request) => pendingIn(backend, request)));
}

const LISTED = (name: string) => [[name], [name], [name], [name]];
const NOWHERE = [[], [], [], []];

const clearing = (sessionId: string, rows: JournalClearing["rows"] = []): StoreWrite => {
  return { kind: "clear", sessionId, expectedRevision: 0, epoch: UNCLAIMED, rows };
};

/** Calls that wait for an answer from outside: the rows they are found by, written and removed with the journal. */
export const WAITING: Cases = {
  async "a call that waits is listed with the row that waits, also in a first turn whose session has no head"({
    backend,
  }) {
    const waiting = call("a", "c1", { tenant: "acme", allowEdit: true, deadline: NOW + 9 });
    await recorded(backend, begins(waiting));
    assert.equal(await backend.head("a"), undefined);
    assert.deepEqual(await everywhere(backend, "a"), LISTED("a c1"));
    assert.deepEqual((await listWaiting(backend, { tenant: "acme" })).calls, [waiting]);
    for (const request of [{ sessionId: "b" }, { tenant: "globex" }])
      assert.deepEqual(await pendingIn(backend, request), []);
  },

  async "a call whose row that waits is refused is in no list"({ backend }) {
    await committed(backend, turn("a", 1));
    const [result] = await written(backend, [recordOf(begins(call("a", "c1", { tenant: "acme" })))]);
    assert.equal(refusal(result).code, "head_conflict");
    assert.deepEqual(await everywhere(backend, "a"), NOWHERE);
  },

  async "a row that waits and is recorded again lists an answered call not again"({ backend }) {
    const waiting = call("a", "c1", { tenant: "acme" });
    await recorded(backend, begins(waiting));
    await recorded(backend, answers(waiting));
    assert.equal((await recorded(backend, begins(waiting))).replayed, true);
    assert.deepEqual(await everywhere(backend, "a"), NOWHERE);
  },

  async "calls come with the longest waiting first, of all sessions, of one, of a tenant, in pages of any size"({
    backend,
  }) {
    const acme = { tenant: "acme" };
    const calls = [
      call("b", "late", { ...acme, since: NOW + 7 }),
      call("a", "first", { ...acme, since: NOW }),
      call("a", "third", { ...acme, since: NOW + 3 }),
      call("c", "second", { since: NOW + 1 }),
      call("日本", "last", { tenant: "globex", since: NOW + 9 }),
      // The same moment as another one.
      call("d", "third", { ...acme, since: NOW + 3 }),
    ];
    for (const waiting of calls) await recorded(backend, begins(waiting));
    const all = await pendingIn(backend);
    assert.deepEqual(
      all.map((name) => name.split(" ")[1]),
      ["first", "second", "third", "third", "late", "last"],
    );
    const wanted = {
      all: [{}, all],
      session: [{ sessionId: "a" }, ["a first", "a third"]],
      tenant: [{ tenant: "acme" }, all.filter((name) => /^[abd] /.test(name))],
      both: [{ sessionId: "a", tenant: "acme" }, ["a first", "a third"]],
      other: [{ sessionId: "a", tenant: "globex" }, []],
    } as const;
    for (const [request, expected] of Object.values(wanted)) {
      for (const limit of [1, 2, 3, 100]) assert.deepEqual(await inPages(backend, request, limit), expected);
    }
  },

  async "the next page is found although the last call of the page before was answered"({ backend }) {
    const calls = ["c1", "c2", "c3"].map((id, n) => call("a", id, { tenant: "acme", since: NOW + n }));
    for (const waiting of calls) await recorded(backend, begins(waiting));
    const requests = [{}, { tenant: "acme" }];
    const first = await Promise.all(requests.map((request) => listWaiting(backend, { ...request, limit: 1 })));
    await recorded(backend, answers(calls[0] as PendingCall));
    for (const [n, request] of requests.entries()) {
      const after = first[n]?.next;
      assert.ok(typeof after === "string");
      const page = await listWaiting(backend, { ...request, after });
      assert.deepEqual([page.calls.map(({ callId }) => callId), page.next], [["c2", "c3"], null]);
    }
  },

  async "an answer, the turn's commit, a turn that came to nothing and a deletion each take a call out of every list"({
    backend,
  }) {
    const ends: Readonly<Record<string, (waiting: PendingCall) => StoreWrite>> = {
      answered: (waiting) => recordOf(answers(waiting)),
      stored: (waiting) => commitOf({ ...turn("stored", 1, { clearsJournal: true }), rows: removalOf(waiting) }),
      refused: (waiting) => clearing("refused", removalOf(waiting)),
      deleted: () => deleteOf("deleted"),
    };
    for (const [sessionId, end] of Object.entries(ends)) {
      const waiting = call(sessionId, "c1", { tenant: "acme" });
      await recorded(backend, begins(waiting));
      assert.deepEqual(await everywhere(backend, sessionId), LISTED(`${sessionId} c1`));
      assert.deepEqual(whichAccepted(await written(backend, [end(waiting)])), [true]);
      assert.deepEqual(await everywhere(backend, sessionId), NOWHERE, sessionId);
    }
  },

  async "a sweep of old journals takes out the calls that waited in them, and leaves a session's other rows"({
    backend,
    pass,
  }) {
    if (pass === undefined) return;
    const other = { table: "tasks", session: "old", key: "1", value: new Uint8Array([1]) };
    await recorded(backend, begins(call("old", "c1", { tenant: "acme" })));
    await changedRows(backend, other);
    pass(7_200_000);
    await recorded(backend, begins(call("new", "c1", { tenant: "acme" })));
    const journals = ["old", "new"];
    const sweep = { kind: "sweep", segments: [], components: [], journals, quietForMs: 3_600_000 } as const;
    assert.deepEqual(whichAccepted(await written(backend, [sweep])), [true]);
    assert.deepEqual(await everywhere(backend, "old"), [["new c1"], [], ["new c1"], []]);
    assert.equal((await backend.row(other))?.version, 1);
  },

  async "a fork has none of its parent's calls that wait, and its end takes none of them out"({ backend }) {
    await committed(backend, turn("a", 1));
    const waiting = call("a", "c1", { tenant: "acme" });
    await recorded(backend, { ...begins(waiting), expectedRevision: 1 });
    await committed(backend, fork("child", "a@1.1"));
    assert.deepEqual(await pendingIn(backend, { sessionId: "child" }), []);
    await written(backend, [deleteOf("child")]);
    assert.deepEqual(await everywhere(backend, "a"), LISTED("a c1"));
  },

  async "calls go on waiting after reopening, in the same order"({ backend, reopen }) {
    if (reopen === undefined) return;
    for (const [n, id] of ["c1", "c2", "c3"].entries())
      await recorded(backend, begins(call("a", id, { tenant: "acme", since: NOW - n })));
    const before = await everywhere(backend, "a");
    assert.deepEqual(before[0], ["a c3", "a c2", "a c1"]);
    assert.deepEqual(await everywhere(await reopen(), "a"), before);
  },
};
