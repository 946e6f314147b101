import { MessageChannel } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { openMemory, type StoreBackend, StoreClient, StoreServer, sealEnvelope } from "../../../src/store/index.js";
import { Lane } from "../../../src/wire/index.js";
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
  return { server, port, client };
}

test("all commits of one tick, from three lanes, are one transaction", async () => {
  const { server, client } = serving();
  const clients = [client(), client(), client()];
  const receipts = await Promise.all(
    clients.flatMap((each, c) => Array.from({ length: 10 }, (_, i) => each.commit(turn(`${c}/${i}`, 1)))),
  );
  expect(receipts).toEqual(Array.from({ length: 30 }, () => ({ revision: 1, replayed: false })));
  expect(server.stats()).toEqual({ transactions: 1, records: 60, commits: 30, recorded: 0, sessions: 30 });
});

test("commits of different ticks are different transactions", async () => {
  const { server, client } = serving();
  const one = client();
  await one.commit(turn("a", 1));
  await one.commit(turn("a", 2));
  expect(server.stats()).toEqual({ transactions: 2, records: 4, commits: 2, recorded: 0, sessions: 1 });
});

test("each commit of a batch gets its own answer, with the error's code and details intact", async () => {
  const { client } = serving();
  const one = client();
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
  const watched: StoreBackend = {
    head: (id) => backend.head(id),
    segment: (id) => backend.segment(id),
    component: (hash) => backend.component(hash),
    journal: (id) => backend.journal(id),
    sessionIds: () => backend.sessionIds(),
    sessionCount: () => backend.sessionCount(),
    isDeleted: (id) => backend.isDeleted(id),
    keys: (table, after, limit) => backend.keys(table, after, limit),
    writes: backend.writes,
    write(batch) {
      const results = backend.write(batch);
      order.push("durable");
      return results;
    },
    close: () => backend.close(),
  };
  await serving(watched).client().commit(turn("a", 1));
  order.push("answered");
  expect(order).toEqual(["durable", "answered"]);
});

test("a backend that throws fails its callers and the store serves on", async () => {
  const backend = openMemory();
  let broken = true;
  const flaky = Object.assign(Object.create(backend) as StoreBackend, {
    write: (batch: Parameters<StoreBackend["write"]>[0]) => {
      if (broken) throw new Error("no such device");
      return backend.write(batch);
    },
    sessionCount: () => backend.sessionCount(),
    close: () => backend.close(),
  });
  const one = serving(flaky).client();
  await expect(one.commit(turn("a", 1))).rejects.toMatchObject({
    code: "store_write_failed",
    cause: { message: "no such device" },
  });
  broken = false;
  await expect(one.commit(turn("a", 1))).resolves.toEqual({ revision: 1, replayed: false });
});

test("a memory store is read through the lane", async () => {
  const one = serving().client();
  const state = component(5);
  await one.commit(turn("a", 1, [state]));
  await one.commit(turn("a", 2));
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
  const one = client();
  const [model, turned, tool] = await Promise.allSettled([
    one.record(outcome("model:1", 0)),
    one.commit({ ...turn("a", 1), clearsJournal: true }),
    one.record(outcome("tool:1", 0)),
  ]);
  expect(model).toEqual({ status: "fulfilled", value: { replayed: false } });
  expect(turned).toEqual({ status: "fulfilled", value: { revision: 1, replayed: false } });
  expect(tool).toMatchObject({ reason: { code: "head_conflict", details: { expected: 0, actual: 1 } } });
  expect(server.stats()).toEqual({ transactions: 1, records: 3, commits: 1, recorded: 1, sessions: 1 });
  expect(await one.journal("a")).toEqual([]);
});

test("a record of another worker gets the first one's outcome, with mismatches typed across the lane", async () => {
  const { client } = serving();
  const [one, other] = [client(), client()];
  await one.record(outcome("tool:1", 0));
  expect(await other.record({ ...outcome("tool:1", 0), bytes: new Uint8Array([9]) })).toEqual({
    replayed: true,
    bytes: new Uint8Array([1, 2]),
  });
  const another = { ...outcome("tool:1", 0), ...sealEnvelope({ key: "tool:1", args: 1 }) };
  await expect(other.record(another)).rejects.toMatchObject({
    code: "replay_mismatch",
    details: { paths: ["$.args"], given: another.hash },
  });
  expect((await other.journal("a")).map(({ key }) => key)).toEqual(["tool:1"]);
});

test("parts of a history are read through the lane", async () => {
  const one = serving().client();
  for (let revision = 1; revision <= 3; revision++) await one.commit(turn("a", revision));
  expect(await one.tail("a@3.0", 2)).toMatchObject({ messages: [{ id: "a@2.0" }, { id: "a@3.0" }], before: "a@1.0" });
  expect((await one.tree("a")).map(({ node }) => node)).toEqual(["a@1.0", "a@2.0", "a@3.0"]);
  expect([await one.onPath("a@3.0", "a@1.0"), await one.onPath("a@3.0", "b@1.0")]).toEqual([true, false]);
});

test("closing writes and answers what was waiting, then refuses", async () => {
  const backend = openMemory();
  const { server, client } = serving(backend);
  const one = client();
  const early = one.commit(turn("a", 1));
  // The lane's message is in the server's port before this resolves, because ports keep their order.
  await one.head("a");
  const closed = server.close();
  await expect(early).resolves.toEqual({ revision: 1, replayed: false });
  await closed;
  await expect(one.commit(turn("a", 2))).rejects.toMatchObject({ code: "store_lost" });
  expect(() => server.attach(new MessageChannel().port1)).toThrow(expect.objectContaining({ code: "store_closed" }));
});

test("a lane that closes leaves the others served", async () => {
  const { client } = serving();
  const [leaving, staying] = [client(), client()];
  const unanswered = leaving.commit(turn("a", 1));
  leaving.close();
  await expect(unanswered).rejects.toMatchObject({ code: "store_lost" });
  await expect(staying.commit(turn("b", 1))).resolves.toEqual({ revision: 1, replayed: false });
});

test("a method the store does not have is unknown_method", async () => {
  const lane = new Lane(serving().port(), { clock: systemClock, name: "store worker" });
  onTestFinished(() => lane.close());
  await expect(lane.call("toString", null)).rejects.toMatchObject({ code: "unknown_method" });
});
