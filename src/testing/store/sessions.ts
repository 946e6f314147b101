import assert from "node:assert/strict";
import type { ReaderFromAfar } from "../../store/index.js";
import {
  bare,
  type Cases,
  commit,
  committed,
  component,
  deleteOf,
  epochOf,
  fork,
  headOf,
  plain,
  type TestedBackend,
  turn,
  written,
} from "./samples.js";

type IndexRange = Parameters<TestedBackend["sessionsInOrder"]>[0];

const ids = (sessions: readonly { readonly sessionId: string }[]) => sessions.map(({ sessionId }) => sessionId);
const HOUR = 3_600_000;

function isFromAfar(backend: TestedBackend): backend is TestedBackend & ReaderFromAfar {
  return "segmentRun" in backend;
}

/** Sessions in lists: by parent, by tenant and time; and who has them. */
export const SESSIONS: Cases = {
  async "a component's size is known without its bytes"({ backend }) {
    const brought = [new Uint8Array(0), new Uint8Array(1_000), new Uint8Array(70_000)].map(component);
    await committed(backend, turn("a", 1, { components: brought }));
    for (const { hash, bytes } of brought) assert.equal(await backend.componentSize(hash), bytes.length);
    assert.equal(await backend.componentSize("none"), undefined);
  },

  async "a store that is asked from afar gives several components, and a run of segments, in one answer"({ backend }) {
    if (!isFromAfar(backend)) return;
    const brought = ["one", "two"].map(component);
    await committed(backend, turn("a", 1, { components: brought }));
    for (const revision of [2, 3]) await committed(backend, turn("a", revision));
    // A revision without messages, and so without a segment.
    await committed(backend, bare({ ...headOf("a", 4), leaf: "a@3.1" }));
    await committed(backend, turn("a", 5, { parent: "a@3.1" }));
    await committed(backend, turn("a@1", 1));
    const found = await backend.components([...brought.map(({ hash }) => hash), "none"]);
    assert.deepEqual([...found.keys()].sort(), brought.map(({ hash }) => hash).sort());
    for (const { hash, bytes } of brought) assert.deepEqual(plain(found.get(hash)), plain(bytes));
    const run = async (id: string, limit: number) => (await backend.segmentRun(id, limit)).map((each) => each.id);
    assert.deepEqual(await run("a@5", 9), ["a@5", "a@3", "a@2", "a@1"]);
    assert.deepEqual(await run("a@3", 2), ["a@3", "a@2"]);
    assert.deepEqual([await run("a@4", 9), await run("a@1@1", 9)], [[], ["a@1@1"]]);
    const [last] = await backend.segmentRun("a@5", 1);
    assert.deepEqual(plain(last?.bytes), plain(await backend.segment("a@5")));
  },

  async "a session's children are those whose heads name it, until they are deleted"({ backend, reopen }) {
    await commit(backend, turn("a", 1), turn("a/b", 1), turn("ab", 1));
    await commit(backend, fork("z", "a@1.1"), fork("日本", "a@1.0"), fork("c", "a/b@1.1"));
    await committed(backend, fork("grandchild", "a@1.1", { parent: { sessionId: "z", leaf: "a@1.1" } }));
    assert.deepEqual(await backend.children("a"), ["z", "日本"]);
    assert.deepEqual(await backend.children("a/b"), ["c"]);
    assert.deepEqual(await backend.children("z"), ["grandchild"]);
    for (const id of ["ab", "c", "nobody"]) assert.deepEqual(await backend.children(id), []);
    const parent = { sessionId: "a", leaf: "a@1.1" };
    await committed(backend, turn("z", 2, { parent: "a@1.1", head: { parent } }));
    assert.deepEqual(await backend.children("a"), ["z", "日本"]);
    await written(backend, [deleteOf("日本"), deleteOf("c")]);
    const again = reopen === undefined ? backend : await reopen();
    assert.deepEqual(await again.children("a"), ["z"]);
    assert.deepEqual(await again.children("a/b"), []);
    // What a session was forked from is said by its own head, which is still there.
    await written(again, [deleteOf("a")]);
    assert.deepEqual(await again.children("a"), ["z"]);
  },

  async "a head says when it was written, by the store's clock"({ backend, pass, reopen }) {
    assert.equal(await backend.storedHead("a"), undefined);
    await committed(backend, turn("a", 1));
    const first = await backend.storedHead("a");
    assert.ok(first !== undefined && Number.isSafeInteger(first.at) && first.at > 0);
    assert.deepEqual(first.head, await backend.head("a"));
    pass?.(HOUR);
    await committed(backend, turn("a", 2));
    const second = await backend.storedHead("a");
    assert.ok(second !== undefined && second.at >= first.at + (pass === undefined ? 0 : HOUR));
    await committed(backend, turn("a", 2));
    const again = reopen === undefined ? backend : await reopen();
    assert.equal((await again.storedHead("a"))?.at, second.at);
  },

  async "a clock that was set back does not take a session back"({ backend, pass }) {
    if (pass === undefined) return;
    await committed(backend, turn("a", 1));
    const at = (await backend.storedHead("a"))?.at;
    pass(-HOUR);
    await committed(backend, turn("a", 2));
    assert.equal((await backend.storedHead("a"))?.at, at);
    assert.deepEqual(await backend.sessionsInOrder({ limit: 9 }), [{ sessionId: "a", at: secondOf(at) }]);
  },

  async "sessions come by tenant and by when each was last written, each once"({ backend, pass, reopen }) {
    const tenants = [undefined, "t", "t2", "T", "日本"];
    const of = (tenant: string | undefined) => (tenant === undefined ? {} : { tenant });
    const name = (tenant: string | undefined, n: number) => `${tenant} ${n}`;
    const all = async (from: TestedBackend, range: Omit<IndexRange, "limit">, limit: number) => {
      const found: { readonly sessionId: string; readonly at: number }[] = [];
      for (let after = range.after; ; after = found.at(-1)) {
        const page = await from.sessionsInOrder({ ...range, ...(after !== undefined && { after }), limit });
        assert.ok(page.length <= limit, "a page has no more than was asked for");
        found.push(...page);
        if (page.length < limit) return found;
      }
    };
    for (const n of [1, 2, 3]) {
      pass?.(HOUR);
      for (const tenant of tenants) await committed(backend, turn(name(tenant, n), 1, { head: of(tenant) }));
    }
    pass?.(HOUR);
    for (const tenant of tenants) await committed(backend, turn(name(tenant, 1), 2, { head: of(tenant) }));
    const again = reopen === undefined ? backend : await reopen();
    for (const tenant of tenants) {
      const found = await all(again, of(tenant), 100);
      if (pass !== undefined)
        assert.deepEqual(
          ids(found),
          [2, 3, 1].map((n) => name(tenant, n)),
        );
      assert.deepEqual(ids(found).sort(), [1, 2, 3].map((n) => name(tenant, n)).sort());
      for (const { sessionId, at } of found) assert.equal(secondOf((await again.storedHead(sessionId))?.at), at);
      assert.deepEqual(
        found.map(({ at }) => at).sort(),
        found.map(({ at }) => at),
      );
      for (const limit of [1, 2]) {
        assert.deepEqual(await all(again, of(tenant), limit), found);
        assert.deepEqual(await all(again, { ...of(tenant), reverse: true }, limit), [...found].reverse());
      }
      const [, middle] = found;
      const bounds = { from: middle?.at ?? 0, until: (middle?.at ?? 0) + 1 };
      if (pass !== undefined) assert.deepEqual(await all(again, { ...of(tenant), ...bounds }, 9), [middle]);
    }
  },

  async "a deleted session is in no list"({ backend }) {
    await commit(backend, turn("a", 1, { head: { tenant: "t" } }), turn("b", 1, { head: { tenant: "t" } }));
    await written(backend, [deleteOf("a")]);
    assert.deepEqual(ids(await backend.sessionsInOrder({ tenant: "t", limit: 9 })), ["b"]);
  },

  async "an imported session is listed from when it was imported"({ backend, pass }) {
    await committed(backend, turn("b", 1));
    pass?.(HOUR);
    const { head, segment } = turn("a", 1);
    const segments = segment === undefined ? [] : [segment];
    const parent = { sessionId: "b", leaf: "b@1.1" };
    await written(backend, [{ kind: "import", sessionId: "a", segments, components: [], head: { ...head, parent } }]);
    const found = await backend.sessionsInOrder({ limit: 9 });
    assert.deepEqual(ids(found).sort(), ["a", "b"]);
    if (pass !== undefined) assert.deepEqual(ids(found), ["b", "a"]);
    const at = found.find(({ sessionId }) => sessionId === "a")?.at;
    assert.equal(secondOf((await backend.storedHead("a"))?.at), at);
    assert.deepEqual(await backend.children("b"), ["a"]);
  },

  async "a session is owned from its claim until it is released or its owner left"({ backend }) {
    assert.equal(await backend.isOwned("a"), false);
    const epoch = await backend.claim("a", { owner: "one", take: "always" });
    await backend.claim("b", { owner: "one", take: "free" });
    assert.deepEqual([await backend.isOwned("a"), await backend.isOwned("b")], [true, true]);
    await backend.release("a", epoch);
    assert.deepEqual([await backend.isOwned("a"), await backend.isOwned("b")], [false, true]);
    await backend.leave("somebody else");
    assert.equal(await backend.isOwned("b"), true);
    await backend.leave("one");
    assert.equal(await backend.isOwned("b"), false);
  },

  async "claiming a session stores nothing"({ backend, reopen }) {
    await epochOf(backend, "a");
    assert.deepEqual({ ...backend.writes }, { transactions: 0, records: 0 });
    const again = reopen === undefined ? backend : await reopen();
    assert.equal(await again.head("a"), undefined);
    assert.deepEqual([await again.sessionCount(), [...(await again.sessionIds())]], [0, []]);
    assert.deepEqual(await again.sessionsInOrder({ limit: 9 }), []);
    for (const table of ["heads", "segments", "components", "journals", "rows"] as const) {
      assert.deepEqual(await again.keys(table, undefined, 9), []);
    }
  },
};

/** Lists know when a session was written to the second. */
function secondOf(at: number | undefined): number {
  return (at ?? 0) - ((at ?? 0) % 1_000);
}
