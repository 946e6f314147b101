import { expect, test } from "vitest";
import {
  type Commit,
  type CommitBudget,
  NO_USAGE,
  type StoredHead,
  type TroupeError,
} from "../../../src/kernel/index.js";
import { type CommitFacts, decide } from "../../../src/kernel/writes/commit.js";

const NOTHING: CommitFacts = {
  now: () => 5,
  epoch: () => 1,
  head: () => undefined,
  isDeleted: () => false,
  segment: () => undefined,
  hasComponent: () => false,
  outline: (bytes) => ({ id: "a@1", parent: null, count: bytes.length }),
};

/** A commit of session `a` whose segment has as many messages as bytes. */
function commitOf(revision: number, changes: Partial<Commit> = {}): Commit {
  return {
    head: {
      sessionId: "a",
      revision,
      leaf: null,
      turnIndex: revision,
      usage: NO_USAGE,
      components: {},
      operation: `op ${revision}`,
    },
    expectedRevision: revision - 1,
    epoch: 1,
    components: [],
    ...changes,
  };
}

function written(facts: CommitFacts, commit: Commit): StoredHead {
  const decision = decide(facts, commit);
  if (decision.kind !== "write") throw new Error(`expected a write, got ${decision.kind}`);
  return decision.stored;
}

/** The facts after these commits. */
function after(...commits: readonly Commit[]): CommitFacts {
  return commits.reduce<CommitFacts>((facts, commit) => {
    const stored = written(facts, commit);
    return { ...NOTHING, head: () => stored };
  }, NOTHING);
}

const codeOf = (facts: CommitFacts, commit: Commit, budget?: CommitBudget) => {
  try {
    return decide(facts, commit, budget).kind;
  } catch (error) {
    return (error as TroupeError).code;
  }
};

test("a commit over the revision it expects is written", () => {
  expect(codeOf(NOTHING, commitOf(1))).toBe("write");
  expect(codeOf(after(commitOf(1)), commitOf(2))).toBe("write");
});

test("a commit whose operation was done is answered with the revision it made", () => {
  const facts = after(commitOf(1), commitOf(2), commitOf(3));
  expect(decide(facts, commitOf(2))).toEqual({ kind: "replay", revision: 2 });
  expect(decide(facts, commitOf(3))).toEqual({ kind: "replay", revision: 3 });
});

test("a commit over any other revision is refused", () => {
  const facts = after(commitOf(1), commitOf(2));
  const other = (revision: number) => {
    const commit = commitOf(revision);
    return { ...commit, head: { ...commit.head, operation: "another" } };
  };
  expect(codeOf(facts, other(2))).toBe("head_conflict");
  expect(codeOf(facts, other(4))).toBe("head_conflict");
  expect(codeOf(facts, other(1))).toBe("session_exists");
});

// quality §3.3 I: writes after delete refused
test("a deleted session cannot be written, whatever revision is expected", () => {
  const facts = { ...NOTHING, isDeleted: () => true };
  expect(codeOf(facts, commitOf(1))).toBe("session_deleted");
  expect(codeOf(facts, commitOf(7))).toBe("session_deleted");
});

test("a receipt is found before the revision is looked at, and a budget before the receipt", () => {
  const facts = after(commitOf(1), commitOf(2));
  const big = { hash: "h", bytes: new Uint8Array(11) };
  const budget = { bytes: 10, nodes: 10 };
  expect(codeOf(facts, commitOf(1), budget)).toBe("replay");
  expect(codeOf(facts, commitOf(1, { components: [big] }), budget)).toBe("commit_too_large");
});

// quality §3.3 A: per-commit row budget and byte budget honoured even when non-default
test("a commit at its budget is written, one byte or one message more is refused with the figures", () => {
  const segmentOf = (size: number): Commit => {
    const commit = commitOf(1, { segment: { id: "a@1", bytes: new Uint8Array(size) } });
    return { ...commit, head: { ...commit.head, leaf: `a@1.${size - 1}` } };
  };
  expect(codeOf(NOTHING, segmentOf(8), { bytes: 8, nodes: 8 })).toBe("write");
  expect(codeOf(NOTHING, segmentOf(8), { bytes: 8, nodes: 7 })).toBe("commit_too_large");
  expect(codeOf(NOTHING, segmentOf(8), { bytes: 7, nodes: 8 })).toBe("commit_too_large");
  const withComponent = { ...segmentOf(8), components: [{ hash: "h", bytes: new Uint8Array(3) }] };
  expect(() => decide(NOTHING, withComponent, { bytes: 10, nodes: 8 })).toThrow(
    expect.objectContaining({
      code: "commit_too_large",
      retryable: false,
      details: { sessionId: "a", bytes: 11, nodes: 8, budget: { bytes: 10, nodes: 8 } },
    }),
  );
});

test("sixteen receipts are kept, newest first, in two numbers each", () => {
  let facts = NOTHING;
  for (let revision = 1; revision <= 20; revision++) {
    const stored = written(facts, commitOf(revision));
    facts = { ...NOTHING, head: () => stored };
  }
  expect(facts.head("a")?.receipts).toHaveLength(32);
  expect(decide(facts, commitOf(5))).toEqual({ kind: "replay", revision: 5 });
  expect(codeOf(facts, commitOf(4))).toBe("head_conflict");
});

test("an intent is compared only when both attempts have one", () => {
  const facts = after(commitOf(1, { intent: "one" }), commitOf(2));
  expect(codeOf(facts, commitOf(1, { intent: "one" }))).toBe("replay");
  expect(codeOf(facts, commitOf(1))).toBe("replay");
  expect(codeOf(facts, commitOf(1, { intent: "other" }))).toBe("operation_conflict");
  expect(codeOf(facts, commitOf(2, { intent: "other" }))).toBe("replay");
});

test("an operation that was done is answered whoever asks, and anything else is refused to who lost the session", () => {
  const facts: CommitFacts = { ...after(commitOf(1), commitOf(2)), epoch: () => 7 };
  expect(codeOf(facts, commitOf(2))).toBe("replay");
  expect(codeOf(facts, commitOf(3))).toBe("session_moved");
  expect(codeOf(facts, commitOf(3, { epoch: 7 }))).toBe("write");
  // Before the revision is looked at: that it is behind does not matter any more.
  expect(codeOf(facts, commitOf(9))).toBe("session_moved");
  expect(codeOf({ ...NOTHING, epoch: () => undefined }, commitOf(1))).toBe("session_moved");
  expect(codeOf({ ...NOTHING, epoch: () => 7, isDeleted: () => true }, commitOf(1))).toBe("session_deleted");
});

test("a head says when it was written, and no earlier than the one before it", () => {
  const at = (now: number, facts: CommitFacts, revision: number) =>
    written({ ...facts, now: () => now }, commitOf(revision));
  const first = at(100, NOTHING, 1);
  expect(first.at).toBe(100);
  const facts = { ...NOTHING, head: () => first };
  expect([at(200, facts, 2).at, at(50, facts, 2).at]).toEqual([200, 100]);
});
