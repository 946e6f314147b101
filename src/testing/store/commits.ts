import assert from "node:assert/strict";
import { type Commit, NO_USAGE } from "../../kernel/index.js";
import { contentHash, encode } from "../../wire/index.js";
import {
  bare,
  type Cases,
  commit,
  commitOf,
  committed,
  component,
  fork,
  headOf,
  messageIds,
  plain,
  refusal,
  sessionIds,
  stateOf,
  turn,
  unreadable,
  whichAccepted,
  written,
} from "./samples.js";

const OK = { ok: true, receipt: { revision: 1, replayed: false } };

/** Heads, segments and components: what a commit stores, and what makes it refused. */
export const COMMITS: Cases = {
  async "an empty store has no heads, segments, components, journals or sessions"({ backend }) {
    assert.equal(await backend.head("a"), undefined);
    assert.equal(await backend.segment("a@1"), undefined);
    assert.equal(await backend.component("none"), undefined);
    assert.deepEqual(await backend.journal("a"), []);
    assert.deepEqual(await sessionIds(backend), []);
    assert.equal(await backend.sessionCount(), 0);
    assert.deepEqual({ ...backend.writes }, { transactions: 0, records: 0 });
  },

  // quality §3.3 A: commit bumps revision and round-trips frames, usage, checkpoint
  async "a commit stores its head, segment and components"({ backend }) {
    const state = component({ calls: 3 });
    const usage = { ...NO_USAGE, inputTokens: 12, reasoningTokens: 5 };
    const frames = [{ frameId: "main", reason: "compaction", leaf: null }];
    const head = {
      usage,
      ledger: [{ source: "compaction", model: "small", usage }],
      frameId: "second",
      frames,
      components: { tools: state.hash },
    };
    const one = turn("a", 1, { components: [state], head });
    assert.deepEqual(await commit(backend, one), [OK]);
    assert.deepEqual(await backend.head("a"), one.head);
    assert.deepEqual(plain(await backend.segment("a@1")), plain(one.segment?.bytes));
    assert.deepEqual(plain(await backend.component(state.hash)), plain(state.bytes));
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 3 });
  },

  async "the next commit replaces the head and keeps every earlier segment"({ backend }) {
    await committed(backend, turn("a", 1));
    await committed(backend, turn("a", 2));
    assert.equal((await backend.head("a"))?.revision, 2);
    assert.notEqual(await backend.segment("a@1"), undefined);
    assert.notEqual(await backend.segment("a@2"), undefined);
    assert.equal(await backend.sessionCount(), 1);
  },

  async "a commit without messages or components writes one record"({ backend }) {
    await committed(backend, turn("parent", 1));
    const child = fork("child", "parent@1.1");
    await committed(backend, child);
    assert.deepEqual(await backend.head("child"), child.head);
    assert.deepEqual({ ...backend.writes }, { transactions: 2, records: 3 });
  },

  // quality §3.3 A: concurrent head CAS applies exactly once
  async "of two commits over one revision exactly one is written, and the other writes nothing"({ backend }) {
    await committed(backend, turn("a", 1));
    const late = component("late");
    const [first, second] = await commit(
      backend,
      turn("a", 2),
      turn("a", 2, { operation: "somebody else", components: [late] }),
    );
    assert.deepEqual(first, { ok: true, receipt: { revision: 2, replayed: false } });
    const error = refusal(second);
    assert.equal(error.code, "head_conflict");
    assert.equal(error.retryable, true);
    assert.deepEqual(error.details, { sessionId: "a", expected: 1, actual: 2 });
    assert.equal((await backend.head("a"))?.operation, "a/2");
    assert.equal(await backend.component(late.hash), undefined);
    assert.deepEqual({ ...backend.writes }, { transactions: 2, records: 4 });
  },

  async "a commit over a session that does not exist conflicts with revision 0"({ backend }) {
    const error = refusal((await commit(backend, turn("a", 4)))[0]);
    assert.equal(error.code, "head_conflict");
    assert.deepEqual(error.details, { sessionId: "a", expected: 3, actual: 0 });
    assert.equal(await backend.head("a"), undefined);
  },

  async "creating a session that exists is refused"({ backend }) {
    await committed(backend, turn("a", 1));
    const error = refusal((await commit(backend, turn("a", 1, { operation: "another open" })))[0]);
    assert.equal(error.code, "session_exists");
    assert.equal(error.retryable, false);
    assert.deepEqual(error.details, { sessionId: "a" });
  },

  // quality §3.3 A: non-derived ids, id collisions, leaf that does not resolve, empty append that moves the head
  async "a commit that does not hang together is refused and changes nothing"({ backend }) {
    await committed(backend, turn("a", 1));
    const before = await stateOf(backend, "a", "b");
    const good = turn("a", 2);
    const named = (id: string, messages: readonly unknown[] = [{}, {}], parent: string | null = "a@1.1"): Commit => ({
      ...good,
      segment: { id, bytes: encode({ id, parent, messages }) },
    });
    const broken: readonly Commit[] = [
      { ...bare(headOf("b", 2)), expectedRevision: 0 },
      named("a@3"),
      named("b@2"),
      { ...good, segment: { id: "a@2", bytes: turn("a", 1).segment?.bytes as Uint8Array } },
      { ...good, head: { ...good.head, leaf: "a@2.7" } },
      { ...good, head: { ...good.head, leaf: "a@1.1" } },
      named("a@2", []),
      named("a@2", [{}, {}], null),
      named("a@2", [{}, {}], "a@1.0"),
      bare({ ...headOf("a", 2), leaf: "a@1.0" }),
      bare({ ...headOf("a", 2), leaf: null }),
    ];
    for (const each of broken) assert.equal(refusal((await commit(backend, each))[0]).code, "invalid_commit");
    assert.deepEqual(await stateOf(backend, "a", "b"), before);
  },

  // quality §3.3 A: unresolvable / missing leaf refused
  async "a session cannot begin at a node that is not stored"({ backend }) {
    await committed(backend, turn("a", 1));
    for (const leaf of ["a@9.0", "a@1.2", "nonsense"]) {
      const error = refusal((await commit(backend, fork("child", leaf)))[0]);
      assert.equal(error.code, "history_missing");
      assert.deepEqual(error.details, { sessionId: "child", node: leaf });
    }
    assert.deepEqual(await sessionIds(backend), ["a"]);
  },

  // quality §3.3 A: unknown component ref refused
  async "a head cannot name a component that is neither stored nor brought"({ backend }) {
    const state = component("state");
    const naming = turn("a", 1, { head: { components: { tools: state.hash } } });
    const error = refusal((await commit(backend, naming))[0]);
    assert.equal(error.code, "component_missing");
    assert.deepEqual(error.details, { sessionId: "a", name: "tools", hash: state.hash });
    await committed(backend, { ...naming, components: [state] });
    await committed(backend, turn("b", 1, { head: { components: { other: state.hash } } }));
  },

  // quality §3.3 A: replace-then-clear removes the live state ref
  async "a component that a head no longer names stays readable by its hash until it is pruned"({ backend }) {
    const state = component("state");
    await committed(backend, turn("a", 1, { components: [state], head: { components: { tools: state.hash } } }));
    await committed(backend, turn("a", 2));
    assert.deepEqual((await backend.head("a"))?.components, {});
    assert.deepEqual(plain(await backend.component(state.hash)), plain(state.bytes));
  },

  async "a batch is one transaction"({ backend }) {
    const results = await commit(backend, ...Array.from({ length: 50 }, (_, i) => turn(`session ${i}`, 1)));
    assert.equal(results.length, 50);
    assert.ok(results.every(({ ok }) => ok));
    assert.deepEqual({ ...backend.writes }, { transactions: 1, records: 100 });
  },

  async "an empty batch is answered without a transaction"({ backend }) {
    assert.deepEqual(await written(backend, []), []);
    assert.deepEqual({ ...backend.writes }, { transactions: 0, records: 0 });
  },

  async "a refused commit does not touch the others of its batch"({ backend }) {
    await committed(backend, turn("b", 1));
    const results = await commit(backend, turn("a", 1), turn("b", 1, { operation: "other" }), turn("c", 1));
    assert.deepEqual(whichAccepted(results), [true, false, true]);
    assert.deepEqual(await sessionIds(backend), ["a", "b", "c"]);
    assert.equal((await backend.head("b"))?.operation, "b/1");
  },

  async "two commits of one session in one batch see each other"({ backend }) {
    const results = await commit(backend, turn("a", 1), turn("a", 2), turn("a", 2, { operation: "rival" }));
    assert.deepEqual(results.slice(0, 2), [OK, { ok: true, receipt: { revision: 2, replayed: false } }]);
    assert.equal(refusal(results[2]).code, "head_conflict");
    assert.equal((await backend.head("a"))?.operation, "a/2");
  },

  async "a fork may stand in the same batch as what it forks, and share the component it brings"({ backend }) {
    const state = component("state");
    const results = await commit(
      backend,
      turn("parent", 1, { components: [state] }),
      fork("child", "parent@1.0", { components: { tools: state.hash } }),
    );
    assert.deepEqual(whichAccepted(results), [true, true]);
    assert.deepEqual(await messageIds(backend, "child"), ["parent/1/user"]);
  },

  // quality §3.3 A: receipt and append atomic
  async "a transaction that fails leaves nothing behind and fails its whole batch"({ backend }) {
    await committed(backend, turn("a", 1));
    const before = await stateOf(backend, "a", "b", "c");
    const fresh = component("before the failure");
    const results = await commit(
      backend,
      turn("a", 2, { components: [fresh] }),
      turn("b", 1, { components: [unreadable()] }),
      turn("c", 1),
    );
    for (const result of results) {
      const error = refusal(result);
      assert.equal(error.code, "store_write_failed");
      assert.equal(error.retryable, true);
      assert.equal((error.cause as Error).message, "the disk is full");
    }
    assert.equal(results.length, 3);
    assert.deepEqual(await stateOf(backend, "a", "b", "c"), before);
    assert.equal(await backend.segment("a@2"), undefined);
    assert.equal(await backend.component(fresh.hash), undefined);
  },

  async "a store works on after a failed transaction"({ backend }) {
    await commit(backend, turn("a", 1, { components: [unreadable()] }));
    assert.deepEqual(await written(backend, [commitOf(turn("a", 1))]), [OK]);
    assert.equal((await backend.head("a"))?.revision, 1);
  },

  async "bytes come back as they went in, empty and large ones too"({ backend }) {
    const bytes = [
      new Uint8Array(0),
      new Uint8Array([0]),
      new Uint8Array(40_000).fill(1),
      new Uint8Array(3_000_000).fill(2),
    ];
    const components = bytes.map((value) => ({ hash: contentHash(value), bytes: value }));
    await committed(backend, turn("a", 1, { components }));
    for (const { hash, bytes } of components) assert.deepEqual(plain(await backend.component(hash)), plain(bytes));
  },

  async "a component is shared by every session that names its hash"({ backend }) {
    const shared = component("shared");
    await commit(backend, turn("a", 1, { components: [shared] }), turn("b", 1, { components: [shared] }));
    assert.deepEqual(plain(await backend.component(shared.hash)), plain(shared.bytes));
  },

  async "any session id is kept apart from any other, whatever its characters"({ backend }) {
    const ids = ["a", "a.b", "a/b", "a@1", "A", "ä", "日本", "😀", "x".repeat(256), "é".repeat(256), " "];
    await commit(backend, ...ids.map((id) => turn(id, 1)));
    assert.equal(await backend.sessionCount(), ids.length);
    for (const id of ids) assert.equal((await backend.head(id))?.sessionId, id);
    for (const id of ids) assert.equal((await messageIds(backend, id))[0], `${id}/1/user`);
  },

  async "session ids come in the order of their bytes"({ backend }) {
    await commit(backend, ...["b", "\u{1F600}", "a/2", "\uFF5E", "a", "Z"].map((id) => turn(id, 1)));
    assert.deepEqual(await sessionIds(backend), ["Z", "a", "a/2", "b", "\uFF5E", "\u{1F600}"]);
  },

  // quality §3.3 I: fork writes zero nodes and shares the prefix
  async "a fork in the middle of a segment shares the history before it"({ backend }) {
    await committed(backend, turn("parent", 1));
    await committed(backend, turn("parent", 2));
    await committed(backend, turn("child", 1, { parent: "parent@2.0" }));
    assert.deepEqual(await messageIds(backend, "child"), [
      "parent/1/user",
      "parent/1/model",
      "parent/2/user",
      "child/1/user",
      "child/1/model",
    ]);
    assert.deepEqual(await messageIds(backend, "parent"), [
      "parent/1/user",
      "parent/1/model",
      "parent/2/user",
      "parent/2/model",
    ]);
  },

  async "a session that enters a frame begins a history of its own, and may return to one that it left"({ backend }) {
    await committed(backend, turn("a", 1));
    const left = { frameId: "main", reason: "compaction", leaf: "a@1.1" };
    await committed(backend, turn("a", 2, { parent: null, head: { frameId: "second", frames: [left] } }));
    assert.deepEqual(await messageIds(backend, "a"), ["a/2/user", "a/2/model"]);
    await committed(backend, turn("a", 3, { parent: "a@1.1", head: { frameId: "main" } }));
    assert.deepEqual(await messageIds(backend, "a"), ["a/1/user", "a/1/model", "a/3/user", "a/3/model"]);
  },
};
