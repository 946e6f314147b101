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
} from "../../src/kernel/index.js";

const NOTHING: WriteFacts = {
  head: () => undefined,
  isDeleted: () => false,
  segment: () => undefined,
  hasComponent: () => false,
  outline: () => ({ id: "", parent: null, count: 1 }),
  journal: () => [],
  journalRow: () => undefined,
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
  commit: { head: headOf(sessionId, revision), expectedRevision: revision - 1, components: [], clearsJournal },
});
const record = (key: string, changes: Partial<JournalEntry> = {}): StoreWrite => ({
  kind: "record",
  at: 5,
  entry: { sessionId: "a", turnId: "t1", key, hash: "h", bytes: new Uint8Array(3), expectedRevision: 0, ...changes },
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
