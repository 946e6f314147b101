import fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Commit, Head, Message, StoreWrite } from "../../../src/kernel/index.js";
import {
  type BackendAtOnce,
  openLmdb,
  openMemory,
  type PrunePolicy,
  type PruneReport,
  Pruning,
  readHistory,
} from "../../../src/store/index.js";
import { contentHash, encode } from "../../../src/wire/index.js";
import { openLater } from "../../support/later-store.js";
import { OwningClient } from "../../support/owning-client.js";
import { commit, serving, temporaryFolder, turn, UNCLAIMED, write as writeOwned } from "../commits.js";

type Options = { readonly clock?: { readonly wallNow: () => number } };
const backends: Readonly<Record<string, (options?: Options) => BackendAtOnce>> = {
  memory: openMemory,
  LMDB: (options) => openLmdb(temporaryFolder(), options),
};

function opened(open: () => BackendAtOnce): BackendAtOnce {
  const backend = open();
  onTestFinished(() => backend.close());
  return backend;
}

const stateOf = (value: unknown) => {
  const bytes = encode(value);
  return { hash: contentHash(bytes), bytes };
};
const naming = (one: Commit, head: Partial<Head>): Commit => ({ ...one, head: { ...one.head, ...head } });
const pause = () => Promise.resolve();

async function prune(
  backend: BackendAtOnce,
  policy: PrunePolicy = { graceMs: 0 },
  { now = 1_000_000, between = pause }: { now?: number; between?: (pruning: Pruning) => Promise<void> } = {},
): Promise<PruneReport> {
  const pruning: Pruning = new Pruning(backend, { policy, suspects: new Map(), now });
  return pruning.run(() => between(pruning));
}

/** Writes as the server does: accepted writes are told to the pruning at once. */
function write(backend: BackendAtOnce, pruning: Pruning, ...writes: readonly StoreWrite[]): boolean[] {
  return writeOwned(backend, ...writes).map((result, i) => {
    if (result.ok) pruning.wrote(writes[i] as StoreWrite);
    return result.ok;
  });
}

/** A turn whose one message has an attachment. */
function attaching(sessionId: string, revision: number, blob: Commit["components"][number]): Commit {
  const { id } = turn(sessionId, revision).segment as { id: string };
  const source = { kind: "stored", hash: blob.hash, bytes: blob.bytes.length } as const;
  const message: Message = { id: "m", role: "user", parts: [{ type: "attachment", mediaType: "image/png", source }] };
  const parent = revision === 1 ? null : `${sessionId}@${revision - 1}.0`;
  return {
    ...turn(sessionId, revision, [blob]),
    segment: { id, bytes: encode({ id, parent, messages: [message] }) },
  };
}

describe.each(Object.keys(backends))("pruning a store in %s", (kind) => {
  const open = backends[kind] as (options?: Options) => BackendAtOnce;

  test("removes components no head names any more, and nothing else", async () => {
    const backend = opened(open);
    const states = [1, 2, 3].map((calls) => stateOf({ calls }));
    states.forEach((state, i) => {
      commit(backend, naming(turn("a", i + 1, [state]), { components: { "plugin:p": state.hash } }));
    });
    expect(await prune(backend)).toEqual({
      segments: { kept: 3, removed: 0, waiting: 0 },
      components: { kept: 1, removed: 2, waiting: 0 },
      journals: { kept: 0, removed: 0, waiting: 0 },
    });
    expect(states.map(({ hash }) => backend.component(hash) !== undefined)).toEqual([false, false, true]);
    expect(readHistory(backend, "a@3.0")).toHaveLength(3);
  });

  // quality §3.3 I: deleting either sibling keeps the shared prefix; vacuum
  test("removes what a deleted session alone led to, and keeps what a fork shares with it", async () => {
    const backend = opened(open);
    for (let revision = 1; revision <= 3; revision++) commit(backend, turn("parent", revision));
    commit(backend, naming(turn("child", 1), { leaf: "child@1.0" }));
    const forked: Commit = {
      head: { ...turn("fork", 1).head, leaf: "parent@2.0", parent: { sessionId: "parent", leaf: "parent@2.0" } },
      expectedRevision: 0,
      epoch: UNCLAIMED,
      components: [],
    };
    commit(backend, forked);
    writeOwned(backend, { kind: "delete", sessionId: "parent", epoch: UNCLAIMED });
    expect((await prune(backend)).segments).toEqual({ kept: 3, removed: 1, waiting: 0 });
    expect(readHistory(backend, "parent@2.0")).toHaveLength(2);
    writeOwned(backend, { kind: "delete", sessionId: "fork", epoch: UNCLAIMED });
    expect((await prune(backend)).segments).toEqual({ kept: 1, removed: 2, waiting: 0 });
  });

  test("keeps the frames a session left, and the node it was forked from", async () => {
    const backend = opened(open);
    commit(backend, turn("parent", 1), turn("parent", 2));
    const frames = [{ frameId: "main", reason: "compaction", leaf: "a@1.0" }];
    commit(backend, turn("a", 1));
    const second = turn("a", 2);
    const bytes = encode({ id: "a@2", parent: null, messages: [{ id: "m", role: "user", parts: [] }] });
    commit(
      backend,
      naming(
        { ...second, segment: { id: "a@2", bytes } },
        { frameId: "second", frames, parent: { sessionId: "parent", leaf: "parent@1.0" } },
      ),
    );
    writeOwned(backend, { kind: "delete", sessionId: "parent", epoch: UNCLAIMED });
    expect((await prune(backend)).segments).toEqual({ kept: 3, removed: 1, waiting: 0 });
    expect(readHistory(backend, "a@1.0")).toHaveLength(1);
    expect(readHistory(backend, "parent@1.0")).toHaveLength(1);
  });

  test("keeps attachments that a history, an input that waits, or an unfinished turn names", async () => {
    const backend = opened(open);
    const blobs = ["history", "waiting", "recorded", "nobody"].map((name) => stateOf({ blob: name }));
    const [history, waiting, journaled, nobody] = blobs as [
      (typeof blobs)[0],
      (typeof blobs)[0],
      (typeof blobs)[0],
      (typeof blobs)[0],
    ];
    const inputs = stateOf([
      { id: "i", parts: [{ type: "attachment", source: { kind: "stored", hash: waiting?.hash } }] },
    ]);
    const one = attaching("a", 1, history as Commit["components"][number]);
    const brought = [...one.components, waiting, journaled, nobody, inputs] as Commit["components"];
    commit(backend, naming({ ...one, components: brought }, { components: { inputs: inputs.hash } }));
    commit(backend, turn("b", 1));
    const entry = { sessionId: "b", turnId: "t2", key: "tool:1", hash: "h", expectedRevision: 1, epoch: UNCLAIMED };
    writeOwned(backend, { kind: "record", entry: { ...entry, bytes: encode({ stored: journaled?.hash }) } });
    expect((await prune(backend)).components).toEqual({ kept: 4, removed: 1, waiting: 0 });
    expect(blobs.map(({ hash }) => backend.component(hash) !== undefined)).toEqual([true, true, true, false]);
  });

  test("keeps attachments that only a row names, and what a component that a row names leads to", async () => {
    const backend = opened(open);
    const [attached, inner, nobody] = ["attached", "inner", "nobody"].map((name) => stateOf({ blob: name })) as [
      Commit["components"][0],
      Commit["components"][0],
      Commit["components"][0],
    ];
    const outer = stateOf({ leadsTo: inner.hash });
    commit(backend, turn("a", 1, [attached, inner, nobody, outer]));
    const changes = [
      { table: "tasks", key: "of nobody", value: encode({ named: attached.hash }) },
      { table: "tasks", key: "of a", session: "a", value: encode([outer.hash]) },
    ];
    writeOwned(backend, { kind: "rows", changes });
    expect((await prune(backend)).components).toEqual({ kept: 3, removed: 1, waiting: 0 });
    writeOwned(backend, { kind: "delete", sessionId: "a", epoch: UNCLAIMED });
    expect((await prune(backend)).components).toEqual({ kept: 1, removed: 2, waiting: 0 });
    expect(backend.component(attached.hash)).toBeDefined();
  });

  test("keeps what rows name that are written between its steps, in every kind of write", async () => {
    const backend = opened(open);
    const named = Array.from({ length: 4 }, (_, i) => stateOf({ named: i }));
    const garbage = Array.from({ length: 300 }, (_, i) => stateOf({ garbage: i }));
    commit(backend, turn("a", 1, [...named, ...garbage]), turn("b", 1), turn("c", 1));
    const rowOf = (i: number) => [{ table: "tasks", key: `${i}`, value: encode([named[i]?.hash]) }];
    const entry = { sessionId: "b", turnId: "t2", key: "k", hash: "h", bytes: encode(1), expectedRevision: 1 };
    let step = 0;
    const between = async (pruning: Pruning) => {
      if (++step !== 1) return;
      const writes: StoreWrite[] = [
        { kind: "rows", changes: rowOf(0) },
        { kind: "commit", commit: { ...turn("a", 2), rows: rowOf(1) } },
        { kind: "record", entry: { ...entry, epoch: UNCLAIMED, rows: rowOf(2) } },
        { kind: "clear", sessionId: "c", expectedRevision: 1, epoch: UNCLAIMED, rows: rowOf(3) },
      ];
      expect(write(backend, pruning, ...writes)).toEqual([true, true, true, true]);
    };
    expect((await prune(backend, { graceMs: 0 }, { between })).components).toEqual({
      kept: 4,
      removed: 300,
      waiting: 0,
    });
  });

  test("fails and removes nothing when a row cannot be read", async () => {
    const backend = opened(open);
    const state = stateOf("left");
    commit(backend, turn("a", 1, [state]));
    writeOwned(backend, { kind: "rows", changes: [{ table: "tasks", key: "k", value: encode(1) }] });
    const damaged = { ...openLater({ seed: 1, backend }), row: () => Promise.reject(new Error("damaged")) };
    await expect(
      new Pruning(damaged, { policy: { graceMs: 0 }, suspects: new Map(), now: 1 }).run(pause),
    ).rejects.toThrow("damaged");
    expect(backend.component(state.hash)).toBeDefined();
  });

  test("waits until something has been unreachable for the grace, from one pruning to another", async () => {
    const backend = opened(open);
    const state = stateOf("left");
    commit(backend, turn("a", 1, [state]));
    const suspects = new Map<string, number>();
    const at = async (now: number) =>
      (await new Pruning(backend, { policy: { graceMs: 1_000 }, suspects, now }).run(pause)).components;
    expect(await at(5_000)).toEqual({ kept: 0, removed: 0, waiting: 1 });
    expect(await at(5_999)).toEqual({ kept: 0, removed: 0, waiting: 1 });
    expect(await at(6_000)).toEqual({ kept: 0, removed: 1, waiting: 0 });
    expect(suspects.size).toBe(0);
  });

  test("forgets the suspicion against what is reachable again", async () => {
    const backend = opened(open);
    const state = stateOf("back");
    commit(backend, turn("a", 1, [state]));
    const suspects = new Map<string, number>();
    const at = async (now: number) =>
      (await new Pruning(backend, { policy: { graceMs: 10 }, suspects, now }).run(pause)).components;
    await at(100);
    commit(backend, naming(turn("a", 2), { components: { tools: state.hash } }));
    expect(await at(200)).toEqual({ kept: 1, removed: 0, waiting: 0 });
    commit(backend, turn("a", 3));
    expect(await at(300)).toEqual({ kept: 0, removed: 0, waiting: 1 });
  });

  test("removes journals nothing was recorded in for long, but not those of running turns", async () => {
    let now = 0;
    const backend = opened(() => open({ clock: { wallNow: () => now } }));
    const record = (sessionId: string, at: number): void => {
      now = at;
      const bytes = encode(at);
      const entry = { sessionId, turnId: "t1", key: `${at}`, hash: "h", bytes, expectedRevision: 0, epoch: UNCLAIMED };
      writeOwned(backend, { kind: "record", entry });
    };
    record("old", 100);
    record("old", 200);
    record("running", 100);
    record("new", 900);
    now = 1_000;
    const policy = { graceMs: 0, journalsOlderThanMs: 500, running: ["running"] };
    expect((await prune(backend, { ...policy, dryRun: true }, { now })).journals).toEqual({
      kept: 2,
      removed: 1,
      waiting: 0,
    });
    expect((await prune(backend, policy, { now })).journals).toEqual({ kept: 2, removed: 1, waiting: 0 });
    expect(["old", "running", "new"].map((id) => backend.journal(id).length)).toEqual([0, 1, 1]);
    now = 1e9;
    expect((await prune(backend, { graceMs: 0 }, { now })).journals).toEqual({ kept: 2, removed: 0, waiting: 0 });
  });

  test("loses nothing that commits made between its steps store, name or lead to", async () => {
    const backend = opened(open);
    const garbage = Array.from({ length: 600 }, (_, i) => stateOf({ garbage: i }));
    commit(backend, turn("a", 1, garbage));
    // A history that only the fork made below leads to again.
    commit(backend, turn("gone", 1), turn("gone", 2));
    const late = garbage.slice(-3);
    let step = 0;
    const report = await prune(
      backend,
      { graceMs: 0 },
      {
        between: async (pruning) => {
          if (++step !== 1) return;
          const reviving: Commit = {
            head: { ...turn("fork", 1).head, leaf: "gone@2.0", components: { tools: late[0]?.hash ?? "" } },
            expectedRevision: 0,
            epoch: UNCLAIMED,
            components: [],
          };
          const commits = [reviving, attaching("a", 2, late[1] as Commit["components"][number])];
          expect(
            write(backend, pruning, ...commits.map((each) => ({ kind: "commit" as const, commit: each }))),
          ).toEqual([true, true]);
          expect(write(backend, pruning, { kind: "delete", sessionId: "gone", epoch: UNCLAIMED })).toEqual([true]);
        },
      },
    );
    expect(report.components).toEqual({ kept: 2, removed: 598, waiting: 0 });
    expect(late.map(({ hash }) => backend.component(hash) !== undefined)).toEqual([true, true, false]);
    expect(readHistory(backend, "gone@2.0")).toHaveLength(2);
    expect(readHistory(backend, "a@2.0")).toHaveLength(2);
  });

  test("whatever is committed, forked and deleted between its steps, every session stays whole", async () => {
    const step = fc.record({
      session: fc.integer({ min: 0, max: 4 }),
      kind: fc.constantFrom("turn", "fork", "delete", "name", "restate"),
      other: fc.nat(),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), fc.array(step, { maxLength: 30 }), async (before, during) => {
        const backend = open();
        try {
          const world = new World(backend);
          for (const each of before) world.apply(each);
          const pending = [...during];
          await prune(
            backend,
            { graceMs: 0 },
            {
              between: async (pruning) => {
                for (const each of pending.splice(0, 3)) world.apply(each, pruning);
              },
            },
          );
          world.check();
        } finally {
          backend.close();
        }
      }),
      { numRuns: kind === "LMDB" ? 25 : 200 },
    );
  });

  test("fails and removes nothing when it cannot see what a session leads to", async () => {
    const backend = opened(open);
    const state = stateOf("left");
    commit(backend, turn("a", 1, [state]), turn("a", 2));
    backend.write([{ kind: "sweep", segments: ["a@1"], components: [], journals: [], quietForMs: 0 }]);
    await expect(prune(backend)).rejects.toMatchObject({ code: "history_damaged", details: { segment: "a@1" } });
    expect(backend.component(state.hash)).toBeDefined();
  });
});

/** Sessions with one component each, driven at random. */
class World {
  readonly #backend: BackendAtOnce;
  #next = 0;

  constructor(backend: BackendAtOnce) {
    this.#backend = backend;
  }

  apply(step: { session: number; kind: string; other: number }, pruning?: Pruning): void {
    const id = `s${step.session}`;
    const head = this.#backend.head(id);
    const writes = this.#writesOf(step, id, head);
    if (pruning === undefined) writeOwned(this.#backend, ...writes);
    else write(this.#backend, pruning, ...writes);
  }

  #writesOf({ kind, other }: { kind: string; other: number }, id: string, head: Head | undefined): StoreWrite[] {
    const revision = (head?.revision ?? 0) + 1;
    switch (kind) {
      case "turn": {
        const state = stateOf({ n: other % 5 });
        const next = naming(this.#turn(id, revision, head), { components: { p: state.hash } });
        return [{ kind: "commit", commit: { ...next, components: [state] } }];
      }
      case "fork": {
        if (head === undefined) return [];
        const fork = { ...head, sessionId: `fork${this.#next++}`, revision: 1, operation: "fork" };
        return [{ kind: "commit", commit: { head: fork, expectedRevision: 0, epoch: UNCLAIMED, components: [] } }];
      }
      case "delete":
        return [{ kind: "delete", sessionId: id, epoch: UNCLAIMED }];
      // Names a component by its hash only, as a fork's snapshot does.
      case "name": {
        const components = { p: stateOf({ n: other % 5 }).hash };
        return [{ kind: "commit", commit: naming(this.#turn(id, revision, head), { components }) }];
      }
      default:
        return [{ kind: "commit", commit: naming(this.#turn(id, revision, head), { components: {} }) }];
    }
  }

  #turn(id: string, revision: number, head: Head | undefined): Commit {
    const segment = `${id}@${revision}`;
    const messages = [{ id: segment, role: "user", parts: [] }];
    const bytes = encode({ id: segment, parent: head?.leaf ?? null, messages });
    const operation = `op ${this.#next++}`;
    return naming({ ...turn(id, revision), segment: { id: segment, bytes } }, { leaf: `${segment}.0`, operation });
  }

  check(): void {
    for (const id of this.#backend.sessionIds()) {
      const head = this.#backend.head(id) as Head;
      readHistory(this.#backend, head.leaf);
      for (const hash of Object.values(head.components)) expect(this.#backend.component(hash)).toBeDefined();
    }
  }
}

describe("a store worker that prunes", () => {
  const garbage = () => Array.from({ length: 3_000 }, (_, i) => stateOf({ garbage: i }));

  test("answers commits while it does", async () => {
    const { server, client } = serving(openMemory());
    const owner = new OwningClient(client);
    await owner.commit(turn("a", 1, garbage()));
    const order: string[] = [];
    const pruned = server.maintenance.prune({ graceMs: 0 }).then((report) => {
      order.push("pruned");
      return report;
    });
    await owner.commit(turn("a", 2)).then(() => order.push("committed"));
    expect((await pruned).components).toEqual({ kept: 0, removed: 3_000, waiting: 0 });
    expect(order).toEqual(["committed", "pruned"]);
    expect(await client.history("a@2.0")).toHaveLength(2);
  });

  test("does one thing at a time, and stops when the store closes", async () => {
    const backend = openMemory();
    const { server, client } = serving(backend);
    await new OwningClient(client).commit(turn("a", 1, garbage()));
    const [one, other] = [server.maintenance.prune({ graceMs: 0 }), server.maintenance.prune({ graceMs: 0 })];
    await server.close();
    await expect(one).rejects.toMatchObject({ code: "store_closed" });
    await expect(other).rejects.toMatchObject({ code: "store_closed" });
  });

  test("deletes sessions, for whoever has one open too", async () => {
    const { server, client } = serving(openMemory());
    const owner = new OwningClient(client);
    await owner.commit(turn("a", 1));
    expect(await server.deleteSession("a")).toBe(true);
    expect(await server.deleteSession("a")).toBe(false);
    await expect(owner.commit(turn("a", 2))).rejects.toMatchObject({ code: "session_deleted" });
  });

  test("loses nothing to it over a store that answers later, whatever is committed while a batch is away", async () => {
    const states = Array.from({ length: 40 }, (_, i) => stateOf({ state: i }));
    for (let seed = 1; seed <= 20; seed++) {
      const backend = openMemory();
      const { server, client } = serving(openLater({ seed, backend, turns: 3 }));
      const owner = new OwningClient(client);
      await owner.own("a", "b");
      await owner.commit(turn("a", 1, states));
      let going = true;
      const committing = (async () => {
        let refused = 0;
        // Names components by their hashes only: those are there, or the commit is refused.
        for (let revision = 1; going; ) {
          const hash = states[(revision * 7 + refused) % states.length]?.hash ?? "";
          const bytes = encode([states[(revision + refused) % states.length]?.hash]);
          const rows = [{ table: "tasks", key: "k", session: "b", value: bytes }];
          const next = naming(turn("b", revision), { components: { p: hash } });
          const done = await owner.commit({ ...next, rows }).then(
            () => true,
            ({ code }) => expect(code).toBe("component_missing"),
          );
          if (done === true) revision++;
          else refused++;
          if (refused > states.length) return;
        }
      })();
      await server.maintenance.prune({ graceMs: 0 });
      going = false;
      await committing;
      const { components } = backend.head("b") ?? { components: {} };
      for (const hash of Object.values<string>(components)) expect(backend.component(hash)).toBeDefined();
    }
  });
});
