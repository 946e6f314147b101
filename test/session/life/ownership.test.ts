import { expect, test } from "vitest";
import { deferred } from "../../../src/async/index.js";
import type { TroupeError } from "../../../src/kernel/index.js";
import { openSession } from "../../../src/session/life/open-session.js";
import type { SessionActor } from "../../../src/session/life/session-actor.js";
import { ActiveTurn, UnderWay } from "../../../src/session/worker/under-way.js";
import { MemoryStore } from "../../support/memory-store.js";
import { type MemorySessionOptions, memoryServices } from "../turn/memory-session.js";
import { openActor, unheard } from "./memory-actor.js";

const CALLS = [{ toolCalls: [{ tool: "first" }, { tool: "second" }] }, { text: "done" }];
const says = [CALLS];
const MOVED = { code: "session_moved", retryable: true, details: { sessionId: "s" } };

/** A worker that has session "s", as the store sees it. */
async function worker(store: MemoryStore, owner: string, tools: NonNullable<MemorySessionOptions["tools"]>) {
  const services = await memoryServices({ journals: true, says, tools }, store);
  const underWay = new UnderWay();
  const open = (take: "always" | "free"): SessionActor => {
    const actor = openActor(services, {
      open: (chart) => {
        store.owner = owner;
        return openSession(services, "s", { chart, take });
      },
      onMoved: (error: TroupeError) => {
        underWay.cancelSession("s", error);
        actor.suspend(error);
      },
    });
    return actor;
  };
  let key = 0;
  const turn = (actor: SessionActor) => {
    const active = new ActiveTurn("s", false, () => undefined);
    return underWay.turn(++key, active, () => actor.turn("hello", active));
  };
  return { open, turn };
}

const settledWith = (promise: Promise<unknown>) =>
  promise.then(
    () => "done",
    (error: TroupeError) => error,
  );

test("who lost its session in the middle of a turn aborts what the turn is at, stores and clears nothing, and ends", async () => {
  const store = new MemoryStore();
  const [gate, late] = [deferred<string>(), deferred()];
  const aborted = deferred();
  const loser = await worker(store, "one", {
    first: () => gate.promise,
    second: (_, signal) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          aborted.resolve();
          reject(signal.reason);
        });
      }),
  });
  const held = loser.open("always");
  const turn = settledWith(loser.turn(held));
  const queued = settledWith(loser.turn(held));
  await expect.poll(() => store.backend.journal("s").length).toBeGreaterThan(1);

  const winner = await worker(store, "two", { first: async () => "quick", second: () => late.promise });
  const taken = winner.open("always");
  await taken.opened();
  await expect.poll(() => store.backend.journal("s").some(({ key }) => key.startsWith("tools:"))).toBe(true);
  const journal = structuredClone(store.backend.journal("s"));

  gate.resolve("slow");
  await aborted.promise;
  expect(await turn).toMatchObject(MOVED);
  expect(await queued).toMatchObject(MOVED);
  await held.ended();
  expect([held.state, held.failure]).toEqual(["stale", expect.objectContaining(MOVED)]);
  expect(store.backend.journal("s")).toEqual(journal);
  expect(store.backend.head("s")).toBeUndefined();

  // It does not take the session back by itself, whatever is asked of it.
  const again = loser.open("free");
  await expect(again.opened()).rejects.toMatchObject(MOVED);
  expect(await settledWith(again.turn("hello", unheard))).toMatchObject({ code: expect.any(String) });

  late.resolve();
  await expect.poll(() => store.backend.head("s")?.turnIndex).toBe(1);
  expect(store.backend.journal("s")).toEqual([]);
});

test("a turn of a stale owner that is refused leaves the journal of its successor", async () => {
  const store = new MemoryStore();
  const gate = deferred<string>();
  const loser = await worker(store, "one", { first: () => gate.promise, second: async () => "b" });
  const turn = settledWith(loser.turn(loser.open("always")));
  await expect.poll(() => store.backend.journal("s").length).toBeGreaterThan(1);
  const epoch = store.backend.claim("s", { owner: "two", take: "always" });
  const recorded = { sessionId: "s", turnId: "t9", key: "mine", hash: "h", bytes: new Uint8Array([1]), epoch };
  await store.record({ ...recorded, expectedRevision: 0 });
  const journal = structuredClone(store.backend.journal("s"));
  gate.resolve("a");
  expect(await turn).toMatchObject(MOVED);
  expect(store.backend.journal("s")).toEqual(journal);
});

test("who asks for a session as another tenant takes it from nobody", async () => {
  const store = new MemoryStore();
  const services = await memoryServices({}, store);
  const held = openActor(services, {
    open: (chart) => openSession(services, "s", { chart, take: "always", tenant: "acme" }),
  });
  await held.turn("hello", unheard);
  store.owner = "another worker";
  const stranger = openActor(services, {
    open: (chart) => openSession(services, "s", { chart, take: "always", tenant: "globex" }),
  });
  await expect(stranger.opened()).rejects.toMatchObject({ code: "tenant_mismatch", retryable: false });
  expect((await held.turn("again", unheard)).turnIndex).toBe(2);
});

test("a session between two turns that was opened elsewhere refuses the next one and then is no more", async () => {
  const store = new MemoryStore();
  const tools = { first: async () => "a", second: async () => "b" };
  const loser = await worker(store, "one", tools);
  const held = loser.open("always");
  await loser.turn(held);
  const winner = await worker(store, "two", tools);
  await winner.open("always").opened();
  const before = structuredClone(store.backend.storedHead("s"));
  expect(await settledWith(loser.turn(held))).toMatchObject(MOVED);
  await held.ended();
  expect(store.backend.storedHead("s")).toEqual(before);
});
