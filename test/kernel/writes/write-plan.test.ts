import { expect, test } from "vitest";
import {
  type JournalEntry,
  type JournalRow,
  NO_USAGE,
  planWrites,
  type Row,
  type RowChange,
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

const rowChange = (key: string, changes: Partial<RowChange> = {}): RowChange => ({
  table: "tasks",
  key,
  value: new Uint8Array(3),
  ...changes,
});
const rowsOf = (...rows: readonly Row[]): WriteFacts => ({
  ...NOTHING,
  row: (name) => rows.find((each) => each.key === name.key && each.session === name.session),
  rowsOf: (id) => rows.filter(({ session }) => session === id),
});
const stored = (key: string, version: number, session?: string): Row => ({
  table: "tasks",
  key,
  value: new Uint8Array(1),
  version,
  order: { at: version },
  ...(session !== undefined && { session }),
});

test("a change of rows says where each row stood before, so that a backend can move it", () => {
  const { changes } = planWrites(rowsOf(stored("1", 4), stored("2", 2)), [
    { kind: "rows", changes: [rowChange("1", { order: { at: 9 } }), rowChange("2", { value: null }), rowChange("3")] },
  ]);
  expect(changes).toMatchObject([
    { kind: "put_row", row: { key: "1", version: 5, order: { at: 9 } }, before: { at: 4 } },
    { kind: "delete_row", name: { key: "2" }, before: { at: 2 } },
    { kind: "put_row", row: { key: "3", version: 1 }, before: undefined },
  ]);
});

test("deleting a session deletes its rows, those of the batch before it too", () => {
  const { changes } = planWrites(rowsOf(stored("1", 1, "a"), stored("2", 1, "a"), stored("3", 1, "b")), [
    { kind: "rows", changes: [rowChange("2", { session: "a", value: null }), rowChange("4", { session: "a" })] },
    { kind: "delete", sessionId: "a", epoch: 1 },
  ]);
  expect(changes.slice(2)).toMatchObject([
    { kind: "delete_row", name: { key: "1", session: "a" }, before: { at: 1 } },
    { kind: "delete_row", name: { key: "4", session: "a" }, before: undefined },
  ]);
  expect(changes).toHaveLength(4);
});

test("a row over the byte budget refuses its write", () => {
  const rows = [rowChange("1"), rowChange("2", { value: new Uint8Array(11) })];
  const one = commit("a", 1) as Extract<StoreWrite, { kind: "commit" }>;
  const { results, changes } = planWrites(
    NOTHING,
    [
      { kind: "rows", changes: rows },
      { kind: "commit", commit: { ...one.commit, rows } },
    ],
    { bytes: 10, nodes: 1 },
  );
  const error = { code: "commit_too_large", details: { table: "tasks", key: "2", bytes: 11 } };
  expect(results).toMatchObject([{ error }, { error }]);
  expect(changes).toEqual([]);
});

test("only the session's owner records, clears and deletes, and changes rows as its owner", () => {
  const moved = { ...journalOf(row(0, "one")), epoch: () => 2 };
  const { results, changes } = planWrites(moved, [
    record("one"),
    record("two"),
    { kind: "clear", sessionId: "a", expectedRevision: 0, epoch: 1 },
    { kind: "delete", sessionId: "a", epoch: 1 },
    { kind: "rows", changes: [rowChange("1")], owner: { sessionId: "a", epoch: 1 } },
  ]);
  expect(results).toMatchObject(
    Array.from({ length: 5 }, () => ({ error: { code: "session_moved", retryable: true } })),
  );
  expect(changes).toEqual([]);
});

test("a journal is swept only when its last row is older than the time it must have been quiet", () => {
  const facts = (at: number, now: number): WriteFacts => ({
    ...journalOf(row(0, "one"), { ...row(1, "two"), at }),
    now: () => now,
  });
  const sweep: StoreWrite = { kind: "sweep", segments: [], components: [], journals: ["a"], quietForMs: 10 };
  expect(kindsOf(facts(100, 110), sweep)).toEqual([]);
  expect(kindsOf(facts(100, 111), sweep)).toEqual(["clear 0,1"]);
});
