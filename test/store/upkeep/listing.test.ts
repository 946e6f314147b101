import { describe, expect, onTestFinished, test } from "vitest";
import { answerKeyOf, completionKeyOf, type Head } from "../../../src/kernel/index.js";
import {
  type BackendAtOnce,
  type ListRequest,
  openLmdb,
  openMemory,
  type StoreBackend,
  type StoredSession,
} from "../../../src/store/index.js";
import { listStored } from "../../../src/store/records/index.js";
import { encode } from "../../../src/wire/index.js";
import { openLater } from "../../support/later-store.js";
import { commit, damage, serving, temporaryFolder, turn, UNCLAIMED, write } from "../commits.js";

interface Kind {
  readonly backend: BackendAtOnce;
  /** As it is listed. */
  readonly listed: StoreBackend;
  /** What its clock says. */
  at: number;
}

const kinds: Readonly<Record<string, () => Kind>> = {
  memory: () => opened((clock) => openMemory({ clock })),
  LMDB: () => opened((clock) => openLmdb(temporaryFolder(), { clock })),
  "a place far away": () => {
    const kind = opened((clock) => openMemory({ clock }));
    return Object.assign(kind, { listed: openLater({ seed: 3, backend: kind.backend }) });
  },
};

function opened(open: (clock: { wallNow: () => number }) => BackendAtOnce): Kind {
  const now = { at: 0 };
  const backend = open({ wallNow: () => now.at });
  onTestFinished(() => backend.close());
  return Object.assign(now, { backend, listed: backend });
}

function add(kind: Kind, id: string, at: number, head: Partial<Head> = {}, revision = 1): void {
  const one = turn(id, revision);
  kind.at = at;
  expect(commit(kind.backend, { ...one, head: { ...one.head, ...head } })).toMatchObject([{ replayed: false }]);
}

function leaveUnfinished({ backend }: Kind, sessionId: string, revision: number): void {
  const entry = { sessionId, turnId: "t", key: "k", hash: "h", bytes: new Uint8Array(), expectedRevision: revision };
  expect(write(backend, { kind: "record", entry: { ...entry, epoch: UNCLAIMED } })).toMatchObject([{ ok: true }]);
}

/** Every page, joined. */
async function all(kind: Kind, request: ListRequest): Promise<string[]> {
  const ids: string[] = [];
  for (let after: string | undefined; ; ) {
    const { sessions, next } = await listStored(kind.listed, { ...request, after });
    ids.push(...sessions.map(({ id }) => id));
    if (next === null) return ids;
    after = next;
  }
}

describe.each(Object.keys(kinds))("a store in %s", (name) => {
  const open = kinds[name] as () => Kind;

  test("lists its sessions in pages by id", async () => {
    const kind = open();
    expect(await listStored(kind.listed, {})).toEqual({ sessions: [], next: null });
    for (const [i, id] of ["c", "a", "b"].entries()) add(kind, id, 100 + i);
    add(kind, "b", 200, {}, 2);
    add(kind, "d", 300, { parent: { sessionId: "a", leaf: "a@1.0" }, tenant: "acme", metadata: { colour: "red" } });
    leaveUnfinished(kind, "c", 1);
    const idle = { turns: 1, revision: 1, state: "idle" };
    expect(await listStored(kind.listed, { limit: 2 })).toEqual({
      sessions: [
        { id: "a", ...idle, changedAt: 101 },
        { id: "b", turns: 2, revision: 2, state: "idle", changedAt: 200 },
      ],
      next: "b",
    });
    expect(await listStored(kind.listed, { limit: 2, after: "b" })).toEqual({
      sessions: [
        { id: "c", ...idle, state: "unfinished", changedAt: 100 },
        { id: "d", ...idle, changedAt: 300, parent: "a", tenant: "acme", metadata: { colour: "red" } },
      ],
      next: null,
    });
  });

  test("lists its sessions by when they were last written, newest first, of one tenant or of none", async () => {
    const kind = open();
    for (let i = 0; i < 9; i++) add(kind, `s${i}`, (100 - i) * 1_000 + i, i % 3 === 0 ? { tenant: "acme" } : {});
    add(kind, "s8", 200_000, {}, 2);
    expect(await all(kind, { order: "changed" })).toEqual(["s8", "s1", "s2", "s4", "s5", "s7"]);
    expect(await all(kind, { order: "changed", limit: 2 })).toEqual(["s8", "s1", "s2", "s4", "s5", "s7"]);
    expect(await all(kind, { order: "changed", tenant: "acme", limit: 1 })).toEqual(["s0", "s3", "s6"]);
    expect(await all(kind, { order: "changed", changedSince: 96_004, changedBefore: 98_003 })).toEqual(["s2", "s4"]);
    // The list knows seconds, and the sessions' own heads the rest.
    expect(await all(kind, { order: "changed", changedSince: 96_005, changedBefore: 98_002 })).toEqual([]);
    expect(await all(kind, { order: "changed", tenant: "nobody" })).toEqual([]);
    write(kind.backend, { kind: "delete", sessionId: "s8", epoch: UNCLAIMED });
    expect(await all(kind, { order: "changed", limit: 1 })).toEqual(["s1", "s2", "s4", "s5", "s7"]);
  });

  test("lists sessions of the same time in an order that pages go on in", async () => {
    const kind = open();
    for (const id of ["b", "a", "日本", "c"]) add(kind, id, 5);
    const whole = await all(kind, { order: "changed" });
    expect([...whole].sort()).toEqual(["a", "b", "c", "日本"]);
    expect(await all(kind, { order: "changed", limit: 1 })).toEqual(whole);
  });

  test("lists only what every filter wants, in both orders", async () => {
    const kind = open();
    const ids = ["chat", "chat/1", "chat/2", "chat 3", "other", "日本 😀"];
    ids.forEach((id, i) => {
      add(kind, id, i * 10, { tenant: i % 2 === 0 ? "even" : "odd", metadata: { n: `${i}`, of: "six" } });
    });
    leaveUnfinished(kind, "chat/1", 1);
    leaveUnfinished(kind, "other", 1);
    const wanted: readonly (readonly [ListRequest, readonly string[]])[] = [
      [{ prefix: "chat" }, ["chat", "chat 3", "chat/1", "chat/2"]],
      [{ prefix: "chat/" }, ["chat/1", "chat/2"]],
      [{ prefix: "日" }, ["日本 😀"]],
      [{ prefix: "zzz" }, []],
      [{ tenant: "even" }, ["chat", "chat/2", "other"]],
      [{ state: "unfinished" }, ["chat/1", "other"]],
      [{ state: "idle", tenant: "even" }, ["chat", "chat/2"]],
      [{ metadata: { of: "six", n: "3" } }, ["chat 3"]],
      [{ metadata: { of: "seven" } }, []],
      [{ metadata: { toString: "x" } }, []],
      [{ metadata: {} }, ["chat", "chat 3", "chat/1", "chat/2", "other", "日本 😀"]],
      [{ changedSince: 20, changedBefore: 40 }, ["chat 3", "chat/2"]],
      [{ changedSince: 20, tenant: "odd", prefix: "chat" }, ["chat 3"]],
    ];
    for (const [request, expected] of wanted) {
      expect(await all(kind, request)).toEqual(expected);
      expect(await all(kind, { ...request, limit: 1 })).toEqual(expected);
      const { tenant } = request;
      const byChange = [...(await all(kind, { ...request, order: "changed", limit: 2 }))];
      // By change, sessions of other tenants than the one that is asked for are never listed.
      expect(byChange.sort()).toEqual(tenant === undefined ? [] : [...expected].sort());
    }
  });

  test("refuses what it does not understand with invalid_list, and says what is wrong", async () => {
    const { listed } = open();
    const wrong: readonly (readonly [unknown, RegExp])[] = [
      [null, /object/],
      [{ limit: 0 }, /limit is a whole number from 1 to 1000/],
      [{ limit: 1_001 }, /limit/],
      [{ limit: 1.5 }, /limit/],
      [{ after: 5 }, /after/],
      [{ after: "a".repeat(301) }, /after/],
      [{ after: "a", order: "changed" }, /after/],
      [{ after: "99999999999999999999:a", order: "changed" }, /after/],
      [{ prefix: 5 }, /prefix/],
      [{ tenant: "" }, /tenant/],
      [{ state: "running" }, /state/],
      [{ changedSince: -1 }, /changedSince/],
      [{ changedBefore: "today" }, /changedBefore/],
      [{ metadata: "red" }, /metadata/],
      [{ metadata: { a: 1 } }, /metadata/],
      [{ order: "size" }, /order/],
      [{ tennant: "a" }, /there is no filter tennant\. Did you mean tenant\?$/],
    ];
    for (const [request, message] of wrong) {
      const refused = listStored(listed, request as ListRequest);
      await expect(refused).rejects.toMatchObject({ code: "invalid_list", message: expect.stringMatching(message) });
    }
  });
});

test("a filter that finds nothing looks at 1,000 heads in one call, and the next call goes on behind them", async () => {
  const backend = openMemory();
  for (let i = 0; i < 1_030; i++) commit(backend, turn(`s${String(i).padStart(5, "0")}`, 1));
  let read = 0;
  const counting: StoreBackend = Object.create(backend, {
    storedHead: {
      value: (id: string) => {
        read++;
        return backend.storedHead(id);
      },
    },
    keys: { value: (...asked: Parameters<BackendAtOnce["keys"]>) => backend.keys(...asked) },
  });
  let pauses = 0;
  const pause = async () => void pauses++;
  const first = await listStored(counting, { tenant: "nobody" }, pause);
  expect([first, read, pauses]).toEqual([{ sessions: [], next: "s00999" }, 1_000, 2]);
  expect(await listStored(counting, { tenant: "nobody", after: "s00999" })).toEqual({ sessions: [], next: null });
  expect(read).toBe(1_030);
});

test("a session in which a call waits for its result or for a yes is listed as waiting, and is unfinished too", async () => {
  const backend = openMemory();
  for (const id of ["agreed", "answered", "asks", "idle", "running", "waits"]) commit(backend, turn(id, 1));
  const record = (sessionId: string, key: string, value: unknown) => {
    const entry = { sessionId, turnId: "t2", key, hash: key, bytes: encode(value), expectedRevision: 1 };
    expect(write(backend, { kind: "record", entry: { ...entry, epoch: UNCLAIMED } })).toMatchObject([{ ok: true }]);
  };
  for (const id of ["agreed", "answered", "asks", "running", "waits"]) record(id, "start", null);
  for (const id of ["agreed", "asks"])
    record(id, "approval:1:c1:1", {
      args: {},
      said: [],
      question: { id: "ask_1", announcement: { kind: "approval" } },
    });
  record("agreed", answerKeyOf(completionKeyOf("agreed", "t2", "ask_1")), { approved: true });
  for (const id of ["answered", "waits"])
    record(id, "tools:1:c1:1", { ran: true, pending: {}, callId: "c1", output: { status: "success", value: null } });
  record("answered", answerKeyOf(completionKeyOf("answered", "t2", "c1")), { status: "success", value: "yes" });
  const listed = async (request: ListRequest) =>
    (await listStored(backend, request)).sessions.map(({ id, state }) => `${id} ${state}`);
  expect(await listed({})).toEqual([
    "agreed unfinished",
    "answered unfinished",
    "asks waiting",
    "idle idle",
    "running unfinished",
    "waits waiting",
  ]);
  expect(await listed({ state: "waiting" })).toEqual(["asks waiting", "waits waiting"]);
  expect(await listed({ state: "unfinished", orderBy: "id" })).toEqual([
    "agreed unfinished",
    "answered unfinished",
    "asks waiting",
    "running unfinished",
    "waits waiting",
  ]);
  await expect(listed({ order: "id", orderBy: "id" })).rejects.toMatchObject({ code: "invalid_list" });
});

test("a session whose head is damaged is listed as that, unless a filter would have to read it", async () => {
  const path = temporaryFolder();
  const backend = openLmdb(path, { clock: { wallNow: () => 7_007 } });
  const one = turn("a", 1);
  commit(backend, { ...one, head: { ...one.head, operation: "to be damaged" } }, turn("b", 1));
  backend.close();
  damage(path, "to be damaged");
  const again = openLmdb(path);
  const { server } = serving(again);
  const damaged: StoredSession = {
    id: "a",
    turns: 0,
    revision: 0,
    changedAt: 0,
    state: "idle",
    damaged: "snapshot_damaged",
  };
  expect((await server.list({})).sessions).toMatchObject([damaged, { id: "b" }]);
  expect((await server.list({ order: "changed" })).sessions).toMatchObject([
    { id: "b" },
    { ...damaged, changedAt: 7_000 },
  ]);
  expect((await server.list({ state: "idle" })).sessions.map(({ id }) => id)).toEqual(["b"]);
});
