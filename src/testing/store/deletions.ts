import assert from "node:assert/strict";
import type { ChangeCount, StoreWrite } from "../../kernel/index.js";
import {
  accepted,
  bare,
  type Cases,
  commit,
  commitOf,
  committed,
  component,
  deleteOf,
  entry,
  fork,
  headOf,
  messageIds,
  plain,
  recorded,
  recordOf,
  refusal,
  sessionIds,
  stateOf,
  type TestedBackend,
  turn,
  whichAccepted,
  written,
} from "./samples.js";

async function changed(backend: TestedBackend, write: StoreWrite): Promise<number> {
  return (accepted((await written(backend, [write]))[0]) as ChangeCount).changed;
}

const sweepOf = (what: Partial<Extract<StoreWrite, { kind: "sweep" }>>): StoreWrite => ({
  kind: "sweep",
  segments: [],
  components: [],
  journals: [],
  quietForMs: 0,
  ...what,
});

/** Deleting sessions, sweeping what they leave, and bringing sessions in from elsewhere. */
export const DELETIONS: Cases = {
  // quality §3.3 I: delete removes and is idempotent; delete never-used = no-op
  async "a deleted session is gone with its journal, and deleting it again does nothing"({ backend }) {
    await committed(backend, turn("a", 1));
    await recorded(backend, entry("a", "tool:1", { expectedRevision: 1 }));
    assert.notEqual(await changed(backend, deleteOf("a")), 0);
    assert.equal(await backend.head("a"), undefined);
    assert.deepEqual(await backend.journal("a"), []);
    assert.deepEqual(await sessionIds(backend), []);
    assert.equal(await backend.sessionCount(), 0);
    assert.equal(await changed(backend, deleteOf("a")), 0);
    assert.equal(await changed(backend, deleteOf("never there")), 0);
    await committed(backend, turn("never there", 1));
  },

  // quality §3.3 I: delete fences handles opened earlier; writes after delete refused
  async "a deleted session's id is not used again, by nobody who had it open and nobody new"({ backend, reopen }) {
    await committed(backend, turn("a", 1));
    await changed(backend, deleteOf("a"));
    const refused = [
      commitOf(turn("a", 2)),
      commitOf(turn("a", 1)),
      commitOf(turn("a", 1, { operation: "another" })),
      recordOf(entry("a", "tool:1", { expectedRevision: 1 })),
      recordOf(entry("a", "tool:1")),
      { kind: "import", sessionId: "a", segments: [], components: [], head: headOf("a", 1) } as const,
    ];
    const again = reopen === undefined ? backend : await reopen();
    for (const write of refused) {
      const error = refusal((await written(again, [write]))[0]);
      assert.equal(error.code, "session_deleted");
      assert.deepEqual(error.details, { sessionId: "a" });
    }
    assert.deepEqual(await sessionIds(again), []);
    assert.deepEqual([await again.isDeleted("a"), await again.isDeleted("never there")], [true, false]);
  },

  async "a session is deleted only at the revision it is expected to have"({ backend }) {
    await committed(backend, turn("a", 1));
    await committed(backend, turn("a", 2));
    const before = await stateOf(backend, "a");
    const error = refusal((await written(backend, [deleteOf("a", 1)]))[0]);
    assert.equal(error.code, "head_conflict");
    assert.deepEqual(error.details, { sessionId: "a", expected: 1, actual: 2 });
    assert.deepEqual(await stateOf(backend, "a"), before);
    assert.notEqual(await changed(backend, deleteOf("a", 2)), 0);
  },

  // quality §3.3 I: deleting either sibling keeps the shared prefix
  async "a fork keeps the history it shares with a deleted session"({ backend }) {
    await committed(backend, turn("parent", 1));
    await committed(backend, fork("child", "parent@1.0"));
    await changed(backend, deleteOf("parent"));
    assert.deepEqual(await messageIds(backend, "child"), ["parent/1/user"]);
    const next = { ...turn("child", 2, { parent: "parent@1.0" }) };
    await committed(backend, next);
    await changed(backend, deleteOf("child"));
    assert.notEqual(await backend.segment("parent@1"), undefined);
  },

  async "what follows a deletion in its batch meets it"({ backend }) {
    await committed(backend, turn("a", 1));
    const results = await written(backend, [deleteOf("a"), commitOf(turn("a", 2)), deleteOf("a")]);
    assert.deepEqual(whichAccepted(results), [true, false, true]);
    assert.equal(refusal(results[1]).code, "session_deleted");
  },

  async "a sweep removes the segments and components it names and nothing else"({ backend }) {
    const [one, other] = [component("one"), component("other")];
    await committed(backend, turn("a", 1, { components: [one, other] }));
    await committed(backend, turn("b", 1));
    assert.equal(await changed(backend, sweepOf({ segments: ["a@1"], components: [one.hash] })), 2);
    assert.equal(await backend.segment("a@1"), undefined);
    assert.equal(await backend.component(one.hash), undefined);
    assert.deepEqual(plain(await backend.component(other.hash)), plain(other.bytes));
    assert.notEqual(await backend.segment("b@1"), undefined);
  },

  async "a commit that names what a sweep before it removed is refused"({ backend }) {
    const state = component("state");
    await committed(backend, turn("a", 1, { components: [state] }));
    const results = await written(backend, [
      sweepOf({ segments: ["a@1"], components: [state.hash] }),
      commitOf(fork("child", "a@1.0")),
      commitOf(bare({ ...headOf("other", 1), leaf: null, components: { tools: state.hash } })),
    ]);
    assert.equal(refusal(results[1]).code, "history_missing");
    assert.equal(refusal(results[2]).code, "component_missing");
    assert.deepEqual(await sessionIds(backend), ["a"]);
  },

  async "journals are swept unless something was recorded in them lately"({ backend, pass }) {
    const hour = 3_600_000;
    await recorded(backend, entry("a", "early"));
    await recorded(backend, entry("b", "early"));
    assert.equal(await changed(backend, sweepOf({ journals: ["a", "b", "none"], quietForMs: hour })), 0);
    if (pass === undefined) return;
    pass(2 * hour);
    await recorded(backend, entry("b", "late"));
    assert.equal(await changed(backend, sweepOf({ journals: ["a", "b", "none"], quietForMs: hour })), 1);
    assert.deepEqual(await backend.journal("a"), []);
    assert.equal((await backend.journal("b")).length, 2);
  },

  async "keys come in order and in pages, journals by their sessions"({ backend }) {
    for (const id of ["b", "a", "c"]) await committed(backend, turn(id, 1));
    await committed(backend, turn("a", 2));
    for (const id of ["b", "a"]) for (const key of ["1", "2"]) await recorded(backend, entry(`${id}/new`, key));
    assert.deepEqual(await backend.keys("segments", undefined, 10), ["a@1", "a@2", "b@1", "c@1"]);
    assert.deepEqual(await backend.keys("segments", undefined, 2), ["a@1", "a@2"]);
    assert.deepEqual(await backend.keys("segments", "a@2", 2), ["b@1", "c@1"]);
    assert.deepEqual(await backend.keys("segments", "a@15", 1), ["a@2"]);
    assert.deepEqual(await backend.keys("heads", undefined, 2), ["a", "b"]);
    assert.deepEqual(await backend.keys("heads", "b", 2), ["c"]);
    assert.deepEqual(await backend.keys("components", undefined, 5), []);
    assert.deepEqual(await backend.keys("journals", undefined, 1), ["a/new"]);
    assert.deepEqual(await backend.keys("journals", "a/new", 9), ["b/new"]);
  },

  async "an imported session is there only when its last part is, and only when nothing is missing"({ backend }) {
    const state = component("state");
    const { segment } = turn("a", 1);
    const head = { ...headOf("a", 7), leaf: "a@1.1", components: { tools: state.hash } };
    const part = { kind: "import", sessionId: "a", components: [] } as const;
    const segments = segment === undefined ? [] : [segment];
    for (const incomplete of [
      { ...part, segments: [], head },
      { ...part, segments, head },
      { ...part, segments: [], components: [state], head },
      { ...part, segments: [{ id: "b@1", bytes: new Uint8Array() }] },
    ]) {
      assert.equal(refusal((await written(backend, [incomplete]))[0]).code, "import_incomplete");
    }
    assert.equal(await changed(backend, { ...part, segments }), 1);
    assert.deepEqual(await sessionIds(backend), []);
    assert.equal(await changed(backend, { ...part, segments: [], components: [state], head }), 2);
    assert.deepEqual(await backend.head("a"), head);
    assert.deepEqual(await committed(backend, turn("a", 8, { parent: "a@1.1" })), { revision: 8, replayed: false });
    const again = refusal((await written(backend, [{ ...part, segments }]))[0]);
    assert.equal(again.code, "session_exists");
    assert.equal(refusal((await commit(backend, turn("a", 1, { operation: "new" })))[0]).code, "session_exists");
  },
};
