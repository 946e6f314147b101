import { describe, expect, onTestFinished, test } from "vitest";
import {
  completionKeyOf,
  type PendingCall,
  type RowChange,
  type StoreWrite,
  WAITING_CALLS,
  WAITING_OF_TENANTS,
} from "../../../src/kernel/index.js";
import { openLmdb, repairStore, sealEnvelope, verifyStore } from "../../../src/store/index.js";
import { answerKeysOf, listWaiting, rowsOfCall } from "../../../src/store/records/index.js";
import { encode } from "../../../src/wire/index.js";
import { commit, damage, temporaryFolder, turn, UNCLAIMED, write } from "../commits.js";

const NOW = 1_700_000_000_000;

/** A call that waits for a yes, in the second turn of `a`, a session of a tenant, or in the first one of `new`. */
function call(sessionId: "a" | "new", changes: Partial<PendingCall> = {}): PendingCall {
  const turnId = sessionId === "a" ? "t2" : "t1";
  return {
    key: completionKeyOf(sessionId, turnId, "ask_1"),
    sessionId,
    tenant: "acme",
    turnId,
    callId: "call:1",
    toolName: "pay",
    args: { amount: 5 },
    announcement: { kind: "approval", value: "May I?" },
    since: NOW,
    ...changes,
  };
}

type Rows = readonly RowChange[] | undefined;

function record({ sessionId, turnId }: PendingCall, key: string, value: unknown, asked: object | null, rows?: Rows) {
  const envelope = sealEnvelope(asked as null);
  const entry = { sessionId, turnId, key, ...envelope, bytes: encode(value), epoch: UNCLAIMED };
  const expectedRevision = sessionId === "a" ? 1 : 0;
  return { kind: "record", entry: { ...entry, expectedRevision, ...(rows && { rows }) } } as StoreWrite;
}

/** The rows of a turn in which a call waits; `rows`: those it is found by. */
function waiting(asked: PendingCall, rows: Rows = rowsOfCall(asked)): StoreWrite[] {
  const { args, toolName, announcement, since, allowEdit, deadline } = asked;
  const deadlineMs = deadline === undefined ? {} : { deadlineMs: deadline - since };
  const question = { id: "ask_1", round: 1, since, announcement, ...(allowEdit && { allowEdit }), ...deadlineMs };
  const start = { identity: { tenant: asked.tenant } };
  return [
    record(asked, "start", start, null),
    record(asked, `approval:0:${asked.callId}:1`, { args, said: [], question }, { toolName, args }, rows),
  ];
}

const answerOf = (asked: PendingCall, rows: Rows = []) =>
  record(asked, answerKeysOf(asked.sessionId, asked.turnId, "ask_1")[0] as string, { approved: true }, null, rows);

/** A store with `a` of tenant acme, and what was written into it since; at one moment, unless a write says another. */
function storeOf(...writes: readonly StoreWrite[]): string {
  const path = temporaryFolder();
  const backend = openLmdb(path, { clock: { wallNow: () => NOW } });
  const a = turn("a", 1);
  commit(backend, { ...a, head: { ...a.head, tenant: "acme" } });
  write(backend, ...writes);
  // The state before the last transaction is in the file too; it is to be the same.
  for (let i = 0; i < 2; i++)
    write(backend, { kind: "rows", changes: [{ table: "other", key: "x", value: encode(i) }] });
  backend.close();
  return path;
}

async function pendingIn(path: string): Promise<readonly PendingCall[]> {
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  const { calls } = await listWaiting(backend, {});
  expect((await listWaiting(backend, { tenant: "acme" })).calls).toEqual(
    calls.filter(({ tenant }) => tenant === "acme"),
  );
  return calls;
}

/** What is said of the rows of calls that wait, session by session; then that a repair leaves nothing to be said. */
function mended(path: string): Record<string, readonly string[]> {
  const { sessions, others } = verifyStore(path);
  const said = [...sessions, { sessionId: "", findings: others }].flatMap(({ sessionId, findings }) =>
    findings.length === 0 ? [] : [[sessionId, findings.map(({ where, message }) => `${where}: ${message}`)] as const],
  );
  const report = repairStore(path);
  expect(report.changed).toBe(said.length > 0);
  expect(report.sessions.map(({ sessionId }) => sessionId)).toEqual(said.map(([id]) => id).filter((id) => id !== ""));
  expect(verifyStore(path).ok).toBe(true);
  return Object.fromEntries(said);
}

const STRAY = /says that a call waits, and nothing in the journal waits for it/;
const MISSING = /is missing: a call waits, and is in no list/;
const BOTH = (what: RegExp) => [
  expect.stringMatching(new RegExp(`^row ${WAITING_CALLS} .*${what.source}`)),
  expect.stringMatching(new RegExp(`^row ${WAITING_OF_TENANTS} .*${what.source}`)),
];

describe("a call that waits and its rows", () => {
  test.each(["a", "new"] as const)(
    "are whole together in session %s: nothing is found and nothing changed",
    async (id) => {
      const path = storeOf(...waiting(call(id)));
      expect(mended(path)).toEqual({});
      expect(await pendingIn(path)).toEqual([call(id)]);
    },
  );

  test.each(["a", "new"] as const)(
    "whose rows are missing in session %s is found, and is listed again after a repair, as it was",
    async (id) => {
      const asked = call(id, { allowEdit: true, deadline: NOW + 60_000 });
      const path = storeOf(...waiting(asked, []));
      expect(mended(path)).toEqual({ [id]: BOTH(MISSING) });
      expect(await pendingIn(path)).toEqual([asked]);
    },
  );

  test("of which only the place among its tenant's is missing gets that back", async () => {
    const asked = call("a");
    const path = storeOf(...waiting(asked, rowsOfCall(asked).slice(0, 1)));
    expect(mended(path)).toEqual({ a: [expect.stringMatching(MISSING)] });
    expect(await pendingIn(path)).toEqual([asked]);
  });

  test("whose row was changed on the disk is listed again after a repair, and its turn is kept", async () => {
    const asked = call("a");
    const path = storeOf(...waiting(asked));
    damage(path, "wait_"); // only its row has its key
    expect(mended(path).a).toHaveLength(2);
    expect(await pendingIn(path)).toEqual([asked]);
  });

  test("that answers later itself, and waits for its result, is made anew like one that waits for a yes", async () => {
    const asked = call("a", {
      callId: "c1",
      key: completionKeyOf("a", "t2", "c1"),
      announcement: { kind: "external" },
    });
    const { args, toolName } = asked;
    const body = { output: { status: "success", value: null }, pending: {}, callId: "c1", since: NOW };
    const start = record(asked, "start", {}, null);
    const path = storeOf(start, record(asked, "tools:0:c1:1", body, { toolName, args }));
    expect(mended(path)).toEqual({ a: BOTH(MISSING) });
    expect(await pendingIn(path)).toEqual([asked]);
  });
});

describe("rows of a call that waits", () => {
  test("without a journal are found and taken out by a repair", async () => {
    const path = storeOf({ kind: "rows", changes: rowsOfCall(call("a")) });
    expect(mended(path)).toEqual({ a: BOTH(STRAY) });
    expect(await pendingIn(path)).toEqual([]);
  });

  test("of a session that is not there are found among the others and taken out", async () => {
    const path = storeOf({ kind: "rows", changes: rowsOfCall(call("new")) });
    expect(mended(path)).toEqual({ "": BOTH(STRAY) });
    expect(await pendingIn(path)).toEqual([]);
  });

  test("that somebody has answered are found and taken out, and the turn is kept", async () => {
    const path = storeOf(...waiting(call("a")), answerOf(call("a")));
    expect(mended(path)).toEqual({ a: BOTH(STRAY) });
    const backend = openLmdb(path);
    onTestFinished(() => backend.close());
    expect(backend.journal("a")).toHaveLength(3);
    expect((await listWaiting(backend, {})).calls).toEqual([]);
  });

  test("go with a journal that a repair does not keep", async () => {
    const path = storeOf(...waiting(call("a")));
    damage(path, "question");
    const report = repairStore(path);
    expect(report.sessions).toMatchObject([{ sessionId: "a", outcome: "changed", lost: [{ where: "journal" }] }]);
    expect(verifyStore(path).ok).toBe(true);
    expect(await pendingIn(path)).toEqual([]);
  });
});

describe("a call that waits no more and has no row is nothing to mend", () => {
  const asked = call("a");
  const { args, toolName } = asked;
  const later = (key: string) => record(asked, key, null, { toolName, args });
  test.each<readonly [string, readonly StoreWrite[]]>([
    ["that was answered", [...waiting(asked, []), answerOf(asked)]],
    ["whose deadline is over", waiting(call("a", { deadline: NOW }), [])],
    ["whose turn goes on", [...waiting(asked, []), later("model:1")]],
    ["whose turn is cancelled", [...waiting(asked, []), record(asked, "cancel", { reason: "no" }, null)]],
  ])("%s", (_, writes) => expect(mended(storeOf(...writes))).toEqual({}));

  test.each(["tools:0:other:1", "resumed:1", "waits:1"])("but one whose step goes on, as %s says, waits", (key) => {
    expect(mended(storeOf(...waiting(asked, []), later(key)))).toEqual({ a: BOTH(MISSING) });
  });

  test("of an older release, which wrote no rows", () => {
    const body = { output: { status: "success", value: null }, pending: {}, callId: "c1" };
    const path = storeOf(record(asked, "start", {}, null), record(asked, "tools:0:c1:1", body, { toolName, args }));
    expect(mended(path)).toEqual({});
  });
});
