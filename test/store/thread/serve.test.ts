import { MessageChannel } from "node:worker_threads";
import { expect, onTestFinished, test, vi } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { StoreWrite } from "../../../src/kernel/index.js";
import {
  type BackendAtOnce,
  openMemory,
  type StoreBackend,
  StoreClient,
  StoreServer,
  sealEnvelope,
} from "../../../src/store/index.js";
import { Lane } from "../../../src/wire/index.js";
import { OwningClient } from "../../support/owning-client.js";
import { component, textsOf, turn } from "../commits.js";

function serving(backend: StoreBackend = openMemory()) {
  const server = new StoreServer(backend, systemClock);
  onTestFinished(() => server.close());
  const port = () => {
    const { port1, port2 } = new MessageChannel();
    server.attach(port1);
    return port2;
  };
  const client = () => {
    const opened = new StoreClient({ clock: systemClock, port: port(), options: { memory: true } });
    onTestFinished(() => opened.close());
    return opened;
  };
  return { server, port, client, owner: () => new OwningClient(client()) };
}

/** Its methods, to be called on an object that has it as its prototype. */
function bound(backend: BackendAtOnce): object {
  const names = new Set<keyof BackendAtOnce>(Object.getOwnPropertyNames(Object.getPrototypeOf(backend)) as never);
  const methods = [...names].map((name) => [name, (backend[name] as () => unknown).bind(backend)]);
  return { ...Object.fromEntries(methods), writes: backend.writes };
}

test("all commits of one tick, from three lanes, are one transaction", async () => {
  const { server, owner } = serving();
  const clients = [owner(), owner(), owner()];
  for (const [c, each] of clients.entries()) await each.own(...Array.from({ length: 10 }, (_, i) => `${c}/${i}`));
  const receipts = await Promise.all(
    clients.flatMap((each, c) => Array.from({ length: 10 }, (_, i) => each.commit(turn(`${c}/${i}`, 1)))),
  );
  expect(receipts).toEqual(Array.from({ length: 30 }, () => ({ revision: 1, replayed: false })));
  expect(await server.stats()).toEqual({ transactions: 1, records: 60, commits: 30, recorded: 0, sessions: 30 });
});

test("commits of different ticks are different transactions", async () => {
  const { server, owner } = serving();
  const one = owner();
  await one.commit(turn("a", 1));
  await one.commit(turn("a", 2));
  expect(await server.stats()).toEqual({ transactions: 2, records: 4, commits: 2, recorded: 0, sessions: 1 });
});

test("each commit of a batch gets its own answer, with the error's code and details intact", async () => {
  const { owner } = serving();
  const one = owner();
  await one.own("a", "b");
  await one.commit(turn("a", 1));
  const rival = turn("a", 1);
  const answers = await Promise.allSettled([
    one.commit(turn("b", 1)),
    one.commit(turn("a", 3)),
    one.commit(turn("a", 1)),
    one.commit({ ...rival, head: { ...rival.head, operation: "rival" } }),
  ]);
  expect(answers).toMatchObject([
    { status: "fulfilled", value: { revision: 1, replayed: false } },
    { reason: { code: "head_conflict", retryable: true, details: { sessionId: "a", expected: 2, actual: 1 } } },
    { status: "fulfilled", value: { revision: 1, replayed: true } },
    { reason: { code: "session_exists", retryable: false } },
  ]);
});

test("a commit is answered only after its transaction", async () => {
  const backend = openMemory();
  const order: string[] = [];
  const watched: StoreBackend = Object.assign(Object.create(bound(backend)), {
    write(batch: readonly StoreWrite[]) {
      const results = backend.write(batch);
      order.push("durable");
      return results;
    },
  });
  await serving(watched).owner().commit(turn("a", 1));
  order.push("answered");
  expect(order).toEqual(["durable", "answered"]);
});

test("a backend that throws fails its callers and the store serves on", async () => {
  const backend = openMemory();
  let broken = true;
  const flaky: StoreBackend = Object.assign(Object.create(bound(backend)), {
    write: (batch: readonly StoreWrite[]) => {
      if (broken) throw new Error("no such device");
      return backend.write(batch);
    },
  });
  const one = serving(flaky).owner();
  await expect(one.commit(turn("a", 1))).rejects.toMatchObject({
    code: "store_write_failed",
    cause: { message: "no such device" },
  });
  broken = false;
  await expect(one.commit(turn("a", 1))).resolves.toEqual({ revision: 1, replayed: false });
});

test("a memory store is read through the lane", async () => {
  const { client } = serving();
  const one = client();
  const owner = new OwningClient(one);
  const state = component(5);
  await owner.commit(turn("a", 1, [state]));
  await owner.commit(turn("a", 2));
  expect(await one.head("a")).toEqual(turn("a", 2).head);
  expect(await one.head("none")).toBeUndefined();
  expect(textsOf(await one.history("a@2.0"))).toEqual(["message 1", "message 2"]);
  expect(await one.history(null)).toEqual([]);
  expect(await one.component(state.hash)).toEqual(new Uint8Array([5]));
  expect(await one.component("none")).toBeUndefined();
  await expect(one.history("a@9.0")).rejects.toMatchObject({ code: "history_damaged" });
});

const outcome = (key: string, expectedRevision: number) => ({
  sessionId: "a",
  turnId: "t1",
  key,
  ...sealEnvelope({ key }),
  bytes: new Uint8Array([1, 2]),
  expectedRevision,
});

test("records and commits of one tick are one transaction, in the order they were sent", async () => {
  const { server, client } = serving();
  const opened = client();
  const one = new OwningClient(opened);
  await one.own("a");
  const [model, turned, tool] = await Promise.allSettled([
    one.record(outcome("model:1", 0)),
    one.commit({ ...turn("a", 1), clearsJournal: true }),
    one.record(outcome("tool:1", 0)),
  ]);
  expect(model).toEqual({ status: "fulfilled", value: { replayed: false } });
  expect(turned).toEqual({ status: "fulfilled", value: { revision: 1, replayed: false } });
  expect(tool).toMatchObject({ reason: { code: "head_conflict", details: { expected: 0, actual: 1 } } });
  expect(await server.stats()).toEqual({ transactions: 1, records: 3, commits: 1, recorded: 1, sessions: 1 });
  expect((await opened.open("a", { take: "always", journal: true })).journal).toEqual([]);
});

test("an outcome that was recorded before is answered with the first one's bytes, and another request refused", async () => {
  const { client } = serving();
  const one = client();
  const owner = new OwningClient(one);
  await owner.record(outcome("tool:1", 0));
  // Whoever has the session next finds what was recorded.
  await owner.own("a");
  expect(await owner.record({ ...outcome("tool:1", 0), bytes: new Uint8Array([9]) })).toEqual({
    replayed: true,
    bytes: new Uint8Array([1, 2]),
    at: expect.any(Number),
  });
  const another = { ...outcome("tool:1", 0), ...sealEnvelope({ key: "tool:1", args: 1 }) };
  await expect(owner.record(another)).rejects.toMatchObject({
    code: "replay_mismatch",
    details: { paths: ["$.args"], given: another.hash },
  });
  const { journal } = await one.open("a", { take: "always", journal: true });
  expect(journal.map(({ key }) => key)).toEqual(["tool:1"]);
});

test("a worker whose session another one opened is refused for whatever it writes, and the other one's is kept", async () => {
  const { server, client } = serving();
  const [first, second] = [client(), client()];
  const { epoch } = await first.open("a", { take: "always", journal: true });
  await first.commit({ ...turn("a", 1), epoch });
  const { epoch: later, head } = await second.open("a", { take: "always", journal: true });
  expect([head?.revision, later > epoch]).toEqual([1, true]);
  await second.record({ ...outcome("tool:1", 1), epoch: later });
  const before = await server.stats();
  const moved = { code: "session_moved", retryable: true, details: { sessionId: "a" } };
  await expect(first.commit({ ...turn("a", 2), epoch })).rejects.toMatchObject(moved);
  await expect(first.record({ ...outcome("tool:2", 1), epoch })).rejects.toMatchObject(moved);
  await expect(first.clearJournal({ sessionId: "a", expectedRevision: 1, epoch })).rejects.toMatchObject(moved);
  expect(await server.stats()).toEqual(before);
  // What goes on by itself takes nothing from somebody alive.
  await expect(first.open("a", { take: "free", journal: true })).rejects.toMatchObject(moved);
  second.release("a", later);
  await second.open("b", { take: "always", journal: false });
  expect((await first.open("a", { take: "free", journal: true })).journal.map(({ key }) => key)).toEqual(["tool:1"]);
});

test("the sessions of a worker that is gone are free, and what it had begun counts as unfinished", async () => {
  const { server, client } = serving();
  const [lost, other] = [client(), client()];
  const { epoch } = await lost.open("a", { take: "always", journal: true });
  await lost.record({ ...outcome("tool:1", 0), epoch });
  expect(await server.unfinished()).toEqual([]);
  lost.close();
  await vi.waitFor(async () => expect(await server.unfinished()).toEqual(["a"]));
  await other.open("a", { take: "free", journal: true });
  expect(await server.unfinished()).toEqual([]);
});

test("while a batch is away the next one gathers, and both are answered in order", async () => {
  const backend = openMemory();
  const batches: number[] = [];
  const away: (() => void)[] = [];
  const slow: StoreBackend = Object.assign(Object.create(bound(backend)), {
    write: (batch: readonly StoreWrite[]) => {
      batches.push(batch.length);
      return new Promise((resolve) => away.push(() => resolve(backend.write(batch))));
    },
  });
  const { server, client } = serving(slow);
  const plain = client();
  const one = new OwningClient(plain);
  await one.own("a", "b", "c");
  const first = one.commit(turn("a", 1));
  await vi.waitFor(() => expect(batches).toEqual([1]));
  const rest = [one.commit(turn("a", 2)), one.commit(turn("b", 1)), one.commit(turn("c", 1))];
  // Behind the three on the lane: they are in by now.
  await plain.head("a");
  expect(batches).toEqual([1]);
  away.shift()?.();
  expect(await first).toEqual({ revision: 1, replayed: false });
  await vi.waitFor(() => expect(batches).toEqual([1, 3]));
  away.shift()?.();
  expect(await Promise.all(rest)).toEqual([2, 1, 1].map((revision) => ({ revision, replayed: false })));
  const last = one.commit(turn("b", 2));
  await plain.head("b");
  const closed = server.close();
  away.shift()?.();
  await expect(last).resolves.toEqual({ revision: 2, replayed: false });
  await closed;
});

test("a backend whose answer is a rejection fails its callers and the store serves on", async () => {
  const backend = openMemory();
  let broken = true;
  const flaky: StoreBackend = Object.assign(Object.create(bound(backend)), {
    write: async (batch: readonly StoreWrite[]) => {
      if (broken) throw new Error("connection lost");
      return backend.write(batch);
    },
  });
  const one = serving(flaky).owner();
  await expect(one.commit(turn("a", 1))).rejects.toMatchObject({ code: "store_write_failed" });
  broken = false;
  await expect(one.commit(turn("a", 1))).resolves.toEqual({ revision: 1, replayed: false });
});

test("parts of a history are read through the lane", async () => {
  const { client } = serving();
  const one = client();
  const owner = new OwningClient(one);
  for (let revision = 1; revision <= 3; revision++) await owner.commit(turn("a", revision));
  expect(await one.tail("a@3.0", 2)).toMatchObject({ messages: [{ id: "a@2.0" }, { id: "a@3.0" }], before: "a@1.0" });
  expect((await one.tree("a")).map(({ node }) => node)).toEqual(["a@1.0", "a@2.0", "a@3.0"]);
  expect([await one.onPath("a@3.0", "a@1.0"), await one.onPath("a@3.0", "b@1.0")]).toEqual([true, false]);
});

test("closing writes and answers what was waiting, then refuses", async () => {
  const backend = openMemory();
  const { server, client } = serving(backend);
  const plain = client();
  const one = new OwningClient(plain);
  await one.own("a");
  const early = one.commit(turn("a", 1));
  // The lane's message is in the server's port before this resolves, because ports keep their order.
  await plain.head("a");
  const closed = server.close();
  await expect(early).resolves.toEqual({ revision: 1, replayed: false });
  await closed;
  await expect(one.commit(turn("a", 2))).rejects.toMatchObject({ code: "store_lost" });
  expect(() => server.attach(new MessageChannel().port1)).toThrow(expect.objectContaining({ code: "store_closed" }));
});

test("a lane that closes leaves the others served", async () => {
  const { client } = serving();
  const [leaving, staying] = [client(), client()];
  const unanswered = leaving.open("a", { take: "always", journal: false });
  leaving.close();
  await expect(unanswered).rejects.toMatchObject({ code: "store_lost" });
  await expect(new OwningClient(staying).commit(turn("b", 1))).resolves.toEqual({ revision: 1, replayed: false });
});

test("a method the store does not have is unknown_method", async () => {
  const lane = new Lane(serving().port(), { clock: systemClock, name: "store worker" });
  onTestFinished(() => lane.close());
  await expect(lane.call("toString", null)).rejects.toMatchObject({ code: "unknown_method" });
});
