import { expect, test } from "vitest";
import {
  type JournalEntry,
  type JournalRow,
  NO_USAGE,
  planWrites,
  type StoredHead,
  type StoreWrite,
  TroupeError,
  type WriteFacts,
} from "../../../src/kernel/index.js";
import { TURNS_WAIT } from "../../../src/kernel/writes/journal.js";

const NOTHING: WriteFacts = {
  now: () => 5,
  epoch: () => 1,
  head: () => undefined,
  isDeleted: () => false,
  segment: () => undefined,
  hasComponent: () => false,
  outline: () => ({ id: "", parent: null, count: 1 }),
  journal: () => [],
  journalRow: () => undefined,
  row: () => undefined,
  rowsOf: () => [],
};

const headOf = (sessionId: string, revision: number) => ({
  sessionId,
  revision,
  leaf: null,
  turnIndex: revision,
  usage: NO_USAGE,
  components: {},
  operation: `${sessionId}/${revision}`,
});
const commit = (sessionId: string, revision: number, clearsJournal = false): StoreWrite => ({
  kind: "commit",
  commit: {
    head: headOf(sessionId, revision),
    expectedRevision: revision - 1,
    epoch: 1,
    components: [],
    clearsJournal,
  },
});
const record = (key: string, changes: Partial<JournalEntry> = {}): StoreWrite => ({
  kind: "record",
  entry: {
    sessionId: "a",
    turnId: "t1",
    key,
    hash: "h",
    bytes: new Uint8Array(3),
    expectedRevision: 0,
    epoch: 1,
    ...changes,
  },
});
const row = (sequence: number, key: string): JournalRow => ({
  sequence,
  turnId: "t1",
  key,
  hash: "h",
  bytes: new Uint8Array([9]),
  at: 1,
});
const journalOf = (...rows: readonly JournalRow[]): WriteFacts => ({
  ...NOTHING,
  journal: () => rows,
  journalRow: (_, sequence) => rows[sequence],
});

test("a head that cannot be read refuses its own session's writes and no others", () => {
  const head = (id: string): StoredHead | undefined => {
    if (id === "damaged") throw new TroupeError("snapshot_damaged", "A stored record cannot be read.");
    return undefined;
  };
  const { results, changes } = planWrites({ ...NOTHING, head }, [commit("damaged", 1), commit("whole", 1)]);
  expect(results).toMatchObject([
    { ok: false, error: { code: "snapshot_damaged" } },
    { ok: true, receipt: { revision: 1 } },
  ]);
  expect(changes).toMatchObject([{ kind: "put_head", stored: { head: { sessionId: "whole" } } }]);
});

test("a read that fails for any other reason fails the batch", () => {
  const head = () => {
    throw new Error("input/output error");
  };
  expect(() => planWrites({ ...NOTHING, head }, [commit("a", 1)])).toThrow("input/output error");
});

test("records are put behind the rows that are there", () => {
  const { changes } = planWrites(journalOf(row(0, "one"), row(1, "two")), [record("three"), record("four")]);
  expect(changes).toEqual([
    { kind: "put_journal", sessionId: "a", row: expect.objectContaining({ sequence: 2, key: "three", at: 5 }) },
    { kind: "put_journal", sessionId: "a", row: expect.objectContaining({ sequence: 3, key: "four" }) },
  ]);
});

test("a commit clears the rows that are there and those recorded before it in the batch", () => {
  const { changes, results } = planWrites(journalOf(row(0, "one")), [
    record("two"),
    commit("a", 1, true),
    record("one", { expectedRevision: 1 }),
  ]);
  expect(results.every(({ ok }) => ok)).toBe(true);
  expect(changes).toMatchObject([
    { kind: "put_journal", row: { sequence: 1 } },
    { kind: "clear_journal", sessionId: "a", sequences: [0, 1] },
    { kind: "put_head" },
    { kind: "put_journal", row: { sequence: 0, key: "one" } },
  ]);
});

test("clearing an empty journal changes nothing beside the head", () => {
  expect(planWrites(NOTHING, [commit("a", 1, true)]).changes).toMatchObject([{ kind: "put_head" }]);
});

test("an outcome over the byte budget is refused", () => {
  const { results } = planWrites(NOTHING, [record("big", { bytes: new Uint8Array(11) })], { bytes: 10, nodes: 1 });
  expect(results).toMatchObject([
    { error: { code: "commit_too_large", details: { sessionId: "a", key: "big", bytes: 11 } } },
  ]);
});

test("a deleted session records nothing", () => {
  const { results } = planWrites({ ...NOTHING, isDeleted: () => true }, [record("one")]);
  expect(results).toMatchObject([{ error: { code: "session_deleted" } }]);
});

test("a mismatch without kept envelopes still names both hashes", () => {
  const { results } = planWrites(journalOf(row(0, "one")), [record("one", { hash: "other" })]);
  expect(results).toMatchObject([
    { error: { code: "replay_mismatch", details: { recorded: "h", given: "other", paths: [] } } },
  ]);
});

const waits = (revision: number, clearsJournal: boolean): StoreWrite => {
  const write = commit("a", revision, clearsJournal) as Extract<StoreWrite, { kind: "commit" }>;
  return { ...write, commit: { ...write.commit, turnsWait: true } };
};
const kindsOf = (facts: WriteFacts, ...batch: readonly StoreWrite[]) =>
  planWrites(facts, batch).changes.flatMap((change) => {
    if (change.kind === "put_journal") return [`put ${change.row.sequence} ${change.row.key}`];
    return change.kind === "clear_journal" ? [`clear ${change.sequences.join()}`] : [];
  });

test("a session in which turns wait has a row in the journal until a commit leaves none of them", () => {
  expect(kindsOf(NOTHING, waits(1, false))).toEqual(["put 0 turns_wait"]);
  expect(kindsOf(NOTHING, waits(1, true))).toEqual(["put 0 turns_wait"]);
  // Already listed, by such a row or by those of a running turn.
  expect(kindsOf(NOTHING, waits(1, false), waits(2, false))).toEqual(["put 0 turns_wait"]);
  expect(kindsOf(journalOf(row(0, "start")), waits(1, false))).toEqual([]);
  // One of them was stored, another one waits; then that one was.
  expect(kindsOf(journalOf(row(0, "start")), waits(1, true), commit("a", 2, true))).toEqual([
    "clear 0",
    "put 0 turns_wait",
    "clear 0",
  ]);
});

test("the row of turns that wait stays when what a turn recorded is cleared, and goes with the session", () => {
  const head = () => ({ head: headOf("a", 1), at: 1, receipts: [] });
  const facts = { ...journalOf(TURNS_WAIT, row(1, "start")), head };
  const clear: StoreWrite = { kind: "clear", sessionId: "a", expectedRevision: 1, epoch: 1 };
  expect(kindsOf(facts, clear)).toEqual(["clear 0,1", "put 0 turns_wait"]);
  const sweep: StoreWrite = { kind: "sweep", segments: [], components: [], journals: ["a"], quietForMs: 0 };
  expect(kindsOf(facts, sweep)).toEqual(["clear 0,1", "put 0 turns_wait"]);
  expect(kindsOf({ ...journalOf(TURNS_WAIT), head }, sweep)).toEqual([]);
  expect(kindsOf(facts, { kind: "delete", sessionId: "a", epoch: 1 })).toEqual(["clear 0,1"]);
});
