import assert from "node:assert/strict";
import { type Commit, type Head, type Message, NO_USAGE, nodeId, segmentId } from "../kernel/index.js";
import { type CommitResult, readHistory, type StoreBackend } from "../store/index.js";
import { contentHash, encode } from "../wire/index.js";

/** One store under test. */
export interface ConformanceStore {
  readonly backend: StoreBackend;
  /** Closes the backend and opens what it left behind; absent for a store that keeps nothing. */
  readonly reopen?: () => Promise<StoreBackend>;
  readonly dispose: () => Promise<void> | void;
}

export interface ConformanceCase {
  readonly name: string;
  readonly run: () => Promise<void>;
}

/**
 * What every store must do, as cases for any test runner. `open` is called once per case and gives an empty store.
 *
 * @example
 * for (const { name, run } of storeConformance("my store", openMine)) test(name, run);
 */
export function storeConformance(name: string, open: () => Promise<ConformanceStore>): ConformanceCase[] {
  return Object.entries(CASES).map(([behaviour, check]) => ({
    name: `${name}: ${behaviour}`,
    async run() {
      const store = await open();
      try {
        await check(store);
      } finally {
        await store.dispose();
      }
    },
  }));
}

const CASES: Readonly<Record<string, (store: ConformanceStore) => Promise<void> | void>> = {
  "an empty store has no heads, segments, components or sessions"({ backend }) {
    assert.equal(backend.head("a"), undefined);
    assert.equal(backend.segment("a@1"), undefined);
    assert.equal(backend.component("none"), undefined);
    assert.deepEqual([...backend.sessionIds()], []);
    assert.equal(backend.sessionCount(), 0);
    assert.deepEqual({ ...backend.writes }, { transactions: 0, records: 0 });
  },

  "a commit stores its head, segment and components"({ backend }) {
    const state = component({ calls: 3 });
    const commit = turn("a", 1, { components: [state] });
    assert.deepEqual(backend.commit([commit]), [{ ok: true, revision: 1, replayed: false }]);
    assert.deepEqual(backend.head("a"), commit.head);
    assert.deepEqual(plain(backend.segment("a@1")), plain(commit.segment?.bytes));
    assert.deepEqual(plain(backend.component(state.hash)), plain(state.bytes));
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 3 });
  },

  "the next commit replaces the head and keeps every earlier segment"({ backend }) {
    backend.commit([turn("a", 1)]);
    backend.commit([turn("a", 2)]);
    assert.equal(backend.head("a")?.revision, 2);
    assert.notEqual(backend.segment("a@1"), undefined);
    assert.notEqual(backend.segment("a@2"), undefined);
    assert.equal(backend.sessionCount(), 1);
  },

  "a commit without messages or components writes one record"({ backend }) {
    backend.commit([turn("parent", 1)]);
    const fork: Commit = {
      head: { ...head("child", 1), leaf: "parent@1.1", parent: { sessionId: "parent", leaf: "parent@1.1" } },
      expectedRevision: 0,
      components: [],
    };
    backend.commit([fork]);
    assert.deepEqual(backend.head("child"), fork.head);
    assert.deepEqual({ ...backend.writes }, { transactions: 2, records: 3 });
  },

  "a commit over an outdated revision is refused and writes nothing"({ backend }) {
    backend.commit([turn("a", 1)]);
    backend.commit([turn("a", 2)]);
    const late = component("late");
    const [result] = backend.commit([turn("a", 2, { operation: "somebody else", components: [late] })]);
    const error = refusal(result);
    assert.equal(error.code, "head_conflict");
    assert.equal(error.retryable, true);
    assert.deepEqual(error.details, { sessionId: "a", expected: 1, actual: 2 });
    assert.equal(backend.head("a")?.operation, "a/2");
    assert.equal(backend.component(late.hash), undefined);
    assert.deepEqual({ ...backend.writes }, { transactions: 2, records: 4 });
  },

  "a commit over a session that does not exist conflicts with revision 0"({ backend }) {
    const error = refusal(backend.commit([turn("a", 4)])[0]);
    assert.equal(error.code, "head_conflict");
    assert.deepEqual(error.details, { sessionId: "a", expected: 3, actual: 0 });
    assert.equal(backend.head("a"), undefined);
  },

  "creating a session that exists is refused"({ backend }) {
    backend.commit([turn("a", 1)]);
    const error = refusal(backend.commit([turn("a", 1, { operation: "another open" })])[0]);
    assert.equal(error.code, "session_exists");
    assert.equal(error.retryable, false);
    assert.deepEqual(error.details, { sessionId: "a" });
  },

  "a head that does not grow by one is refused"({ backend }) {
    const error = refusal(backend.commit([{ head: head("a", 2), expectedRevision: 0, components: [] }])[0]);
    assert.equal(error.code, "invalid_commit");
    assert.equal(backend.head("a"), undefined);
  },

  "repeating an operation is answered and not repeated"({ backend }) {
    backend.commit([turn("a", 1)]);
    assert.deepEqual(backend.commit([turn("a", 1)]), [{ ok: true, revision: 1, replayed: true }]);
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 2 });
  },

  "an operation that later ones have followed is a conflict, not a replay"({ backend }) {
    backend.commit([turn("a", 1)]);
    backend.commit([turn("a", 2)]);
    backend.commit([turn("a", 3)]);
    assert.equal(refusal(backend.commit([turn("a", 2)])[0]).code, "head_conflict");
  },

  "a batch is one transaction"({ backend }) {
    const batch = Array.from({ length: 50 }, (_, i) => turn(`session ${i}`, 1));
    const results = backend.commit(batch);
    assert.equal(results.length, 50);
    assert.ok(results.every((result) => result.ok));
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 100 });
  },

  "an empty batch is answered without a transaction"({ backend }) {
    assert.deepEqual(backend.commit([]), []);
    assert.deepEqual({ ...backend.writes }, { transactions: 0, records: 0 });
  },

  "a refused commit does not touch the others of its batch"({ backend }) {
    backend.commit([turn("b", 1)]);
    const results = backend.commit([turn("a", 1), turn("b", 1, { operation: "other" }), turn("c", 1)]);
    assert.deepEqual(
      results.map((result) => result.ok),
      [true, false, true],
    );
    assert.deepEqual([...backend.sessionIds()], ["a", "b", "c"]);
    assert.equal(backend.head("b")?.operation, "b/1");
  },

  "two commits of one session in one batch see each other"({ backend }) {
    const results = backend.commit([turn("a", 1), turn("a", 2), turn("a", 2, { operation: "rival" })]);
    assert.deepEqual(results.slice(0, 2), [
      { ok: true, revision: 1, replayed: false },
      { ok: true, revision: 2, replayed: false },
    ]);
    assert.equal(refusal(results[2]).code, "head_conflict");
    assert.equal(backend.head("a")?.operation, "a/2");
  },

  "the same operation twice in one batch is written once"({ backend }) {
    assert.deepEqual(backend.commit([turn("a", 1), turn("a", 1)]), [
      { ok: true, revision: 1, replayed: false },
      { ok: true, revision: 1, replayed: true },
    ]);
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 2 });
  },

  "a transaction that fails leaves nothing behind and fails its whole batch"({ backend }) {
    backend.commit([turn("a", 1)]);
    const before = component("before the failure");
    const results = backend.commit([
      turn("a", 2, { components: [before] }),
      turn("b", 1, { components: [unreadable()] }),
      turn("c", 1),
    ]);
    for (const result of results) {
      const error = refusal(result);
      assert.equal(error.code, "store_write_failed");
      assert.equal(error.retryable, true);
      assert.equal((error.cause as Error).message, "the disk is full");
    }
    assert.equal(results.length, 3);
    assert.equal(backend.head("a")?.revision, 1);
    assert.equal(backend.segment("a@2"), undefined);
    assert.equal(backend.component(before.hash), undefined);
    assert.deepEqual([...backend.sessionIds()], ["a"]);
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 2 });
  },

  "a store works on after a failed transaction"({ backend }) {
    backend.commit([turn("a", 1, { components: [unreadable()] })]);
    assert.deepEqual(backend.commit([turn("a", 1)]), [{ ok: true, revision: 1, replayed: false }]);
    assert.equal(backend.head("a")?.revision, 1);
  },

  "bytes come back as they went in, empty and large ones too"({ backend }) {
    const bytes = [
      new Uint8Array(0),
      new Uint8Array([0]),
      new Uint8Array(40_000).fill(1),
      new Uint8Array(3_000_000).fill(2),
    ];
    const components = bytes.map((value) => ({ hash: contentHash(value), bytes: value }));
    backend.commit([turn("a", 1, { components })]);
    for (const { hash, bytes } of components) assert.deepEqual(plain(backend.component(hash)), plain(bytes));
  },

  "a component is shared by every session that names its hash"({ backend }) {
    const shared = component("shared");
    backend.commit([turn("a", 1, { components: [shared] }), turn("b", 1, { components: [shared] })]);
    assert.deepEqual(plain(backend.component(shared.hash)), plain(shared.bytes));
  },

  "any session id is kept apart from any other, whatever its characters"({ backend }) {
    const ids = ["a", "a.b", "a/b", "a@1", "A", "ä", "日本", "😀", "x".repeat(256), "é".repeat(256), " "];
    backend.commit(ids.map((id) => turn(id, 1)));
    assert.equal(backend.sessionCount(), ids.length);
    for (const id of ids) assert.equal(backend.head(id)?.sessionId, id);
    for (const id of ids) assert.equal(readHistory(backend, backend.head(id)?.leaf ?? null)[0]?.id, `${id}/1/user`);
  },

  "session ids come in the order of their bytes"({ backend }) {
    backend.commit(["b", "\u{1F600}", "a/2", "\uFF5E", "a", "Z"].map((id) => turn(id, 1)));
    assert.deepEqual([...backend.sessionIds()], ["Z", "a", "a/2", "b", "\uFF5E", "\u{1F600}"]);
  },

  "a fork in the middle of a segment shares the history before it"({ backend }) {
    backend.commit([turn("parent", 1)]);
    backend.commit([turn("parent", 2)]);
    backend.commit([turn("child", 1, { parent: "parent@2.0" })]);
    assert.deepEqual(
      readHistory(backend, backend.head("child")?.leaf ?? null).map(({ id }) => id),
      ["parent/1/user", "parent/1/model", "parent/2/user", "child/1/user", "child/1/model"],
    );
    assert.deepEqual(
      readHistory(backend, backend.head("parent")?.leaf ?? null).map(({ id }) => id),
      ["parent/1/user", "parent/1/model", "parent/2/user", "parent/2/model"],
    );
  },

  "what was committed is there after reopening"({ backend, reopen }) {
    if (reopen === undefined) return undefined;
    return keepsEverything(backend, reopen);
  },
};

async function keepsEverything(backend: StoreBackend, reopen: () => Promise<StoreBackend>): Promise<void> {
  const state = component({ calls: 7 });
  const last = turn("a", 2, { components: [state] });
  backend.commit([turn("a", 1), turn("b", 1)]);
  backend.commit([last]);
  const again = await reopen();
  assert.deepEqual([...again.sessionIds()], ["a", "b"]);
  assert.deepEqual(again.head("a"), last.head);
  assert.equal(readHistory(again, again.head("a")?.leaf ?? null).length, 4);
  assert.deepEqual(plain(again.component(state.hash)), plain(state.bytes));
  assert.deepEqual(again.commit([last]), [{ ok: true, revision: 2, replayed: true }]);
  assert.deepEqual(again.commit([turn("a", 3)]), [{ ok: true, revision: 3, replayed: false }]);
}

interface TurnOptions {
  readonly operation?: string;
  readonly components?: Commit["components"];
  /** The node the turn continues; by default the last one of the session's turn before. */
  readonly parent?: string;
}

/** The commit of a session's n-th turn: a question and its answer. */
function turn(sessionId: string, revision: number, options: TurnOptions = {}): Commit {
  const id = segmentId(sessionId, revision);
  const parent = options.parent ?? (revision === 1 ? null : nodeId(segmentId(sessionId, revision - 1), 1));
  const messages: Message[] = [
    { id: `${sessionId}/${revision}/user`, role: "user", parts: [{ type: "text", text: "question" }] },
    { id: `${sessionId}/${revision}/model`, role: "assistant", parts: [{ type: "text", text: "answer" }] },
  ];
  return {
    head: { ...head(sessionId, revision), operation: options.operation ?? `${sessionId}/${revision}` },
    expectedRevision: revision - 1,
    segment: { id, bytes: encode({ id, parent, messages }) },
    components: options.components ?? [],
  };
}

function head(sessionId: string, revision: number): Head {
  return {
    sessionId,
    revision,
    leaf: nodeId(segmentId(sessionId, revision), 1),
    turnIndex: revision,
    usage: NO_USAGE,
    components: {},
    operation: `${sessionId}/${revision}`,
  };
}

function component(value: unknown): Commit["components"][number] {
  const bytes = encode(value);
  return { hash: contentHash(bytes), bytes };
}

/** Fails in the middle of a transaction, as a disk would. */
function unreadable(): Commit["components"][number] {
  return {
    hash: "unreadable",
    get bytes(): Uint8Array {
      throw new Error("the disk is full");
    },
  };
}

function refusal(result: CommitResult | undefined) {
  assert.ok(result !== undefined && !result.ok, "the commit should have been refused");
  return result.error;
}

/** Node's Buffer and a plain byte array with the same content are the same answer. */
function plain(bytes: Uint8Array | undefined): Uint8Array | undefined {
  return bytes === undefined ? undefined : new Uint8Array(bytes);
}
