import { expect, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { type Head, type LedgerEntry, type Message, NO_USAGE } from "../../../src/kernel/index.js";
import { Blobs } from "../../../src/session/stored/blobs.js";
import { Component } from "../../../src/session/stored/components.js";
import { StoredSession } from "../../../src/session/stored/stored-session.js";
import { contentHash, encode } from "../../../src/wire/index.js";
import { diskFull, MemoryStore } from "../../support/memory-store.js";

const bytesOf = (text: string) => new TextEncoder().encode(text);
const RED = bytesOf("red");
const BLUE = bytesOf("blue");

/** A session's store side over a store in this thread. */
function storedSession({
  store = new MemoryStore(),
  head,
  journals = true,
}: {
  store?: MemoryStore;
  head?: Head | undefined;
  journals?: boolean;
} = {}) {
  const failures: unknown[] = [];
  const blobs = new Blobs(store);
  const stored = new StoredSession({
    id: "s",
    clock: systemClock,
    store,
    head,
    epoch: store.claim("s"),
    identity: {},
    blobs,
    journals,
    past: { known: 0 },
    inputs: { turnsWait: false },
    life: { giveUp: (error) => failures.push(error) },
  });
  const [colour, shape] = [new Component("colour"), new Component("shape")];
  stored.register(colour, shape);
  return { store, stored, blobs, colour, shape, failures };
}

const usage = (outputTokens: number): LedgerEntry => ({
  source: "titles",
  model: "m",
  usage: { ...NO_USAGE, outputTokens },
});
const message = (id: string): Message => ({ id, role: "user", parts: [{ type: "text", text: "hi" }] });

test("a component is dirty from its change until a write has stored its bytes", async () => {
  const { store, stored, colour } = storedSession();
  expect(stored.dirty).toBe(false);
  colour.change(RED);
  expect([stored.dirty, stored.isSaved]).toEqual([true, false]);
  await stored.store("paint");
  expect([stored.dirty, stored.isSaved, stored.revision]).toEqual([false, true, 1]);
  expect(stored.head?.components).toEqual({ colour: contentHash(RED) });
  expect(await store.component(contentHash(RED))).toEqual(RED);
});

test("nothing dirty means nothing written", async () => {
  const { store, stored } = storedSession();
  await stored.store("nothing");
  expect([stored.head, store.commits]).toEqual([undefined, []]);
});

test("one write stores every dirty component, and its records are a head and the bytes", async () => {
  const { store, stored, colour, shape } = storedSession();
  colour.change(RED);
  shape.change(BLUE);
  await stored.store("paint");
  expect(store.backend.writes).toEqual({ transactions: 1, records: 3 });
});

test("a component set to null leaves the head", async () => {
  const { stored, colour, shape } = storedSession();
  colour.change(RED);
  shape.change(BLUE);
  await stored.store("paint");
  colour.change(null);
  await stored.store("bleach");
  expect(stored.head?.components).toEqual({ shape: contentHash(BLUE) });
});

test("a component that changes while it is being written stays dirty, and the next write stores the change", async () => {
  const { store, stored, colour } = storedSession();
  colour.change(RED);
  const held = store.holdNext();
  const first = stored.store("paint");
  await held.reached;
  colour.change(BLUE);
  held.letGo();
  await first;
  expect(stored.head?.components).toEqual({ colour: contentHash(RED) });
  expect(colour.dirty).toBe(true);
  await stored.store("paint");
  expect(stored.head?.components).toEqual({ colour: contentHash(BLUE) });
  expect(colour.dirty).toBe(false);
});

test("two who store the same change at once make one write", async () => {
  const { store, stored, colour } = storedSession();
  colour.change(RED);
  await Promise.all([stored.store("one"), stored.store("other")]);
  expect([store.commits.length, stored.revision]).toEqual([1, 1]);
});

test("writes wait for each other, and each builds on the head before", async () => {
  const { stored } = storedSession();
  const revisions: number[] = [];
  const write = () => stored.write((_previous, revision) => ({ operation: `w${revisions.push(revision)}` }));
  await Promise.all([write(), write(), write()]);
  expect(revisions).toEqual([1, 2, 3]);
});

test("a write that fails makes the session stale and loses nothing: all of it is still dirty", async () => {
  const { store, stored, colour, blobs, failures } = storedSession();
  colour.change(RED);
  stored.usage.count(usage(5));
  blobs.keep(BLUE);
  store.onCommit = () => {
    throw diskFull();
  };
  await expect(stored.store("paint")).rejects.toMatchObject({ code: "store_write_failed" });
  expect(failures).toMatchObject([{ code: "store_write_failed" }]);
  expect([stored.head, colour.dirty, blobs.dirty, stored.usage.dirty]).toEqual([undefined, true, true, true]);
});

test("a failed write does not keep the next one from being tried", async () => {
  const { store, stored, colour } = storedSession();
  colour.change(RED);
  store.onCommit = (_commit, nth) => {
    if (nth === 1) throw diskFull();
  };
  await Promise.allSettled([stored.store("one"), stored.store("other")]);
  expect([stored.revision, colour.dirty]).toEqual([1, false]);
});

test("a plan that finds nothing to write leaves the head as it is", async () => {
  const { store, stored, colour } = storedSession();
  colour.change(RED);
  await stored.write(() => undefined);
  expect([store.commits.length, colour.dirty]).toEqual([0, true]);
});

test("what becomes true with a write is true once the store has it, before components are clean", async () => {
  const { stored, colour } = storedSession();
  colour.change(RED);
  const seen: unknown[] = [];
  const adopted = () => seen.push([stored.revision, colour.dirty]);
  await stored.write(() => ({ operation: "paint", adopted }));
  expect(seen).toEqual([[1, true]]);
});

test("a change in a running turn is left to the turn when that is wanted", async () => {
  const { stored, colour } = storedSession();
  colour.change(RED);
  let runs = true;
  await stored.store("paint", () => runs);
  expect([stored.revision, colour.dirty]).toEqual([0, true]);
  runs = false;
  await stored.store("paint", () => runs);
  expect([stored.revision, colour.dirty]).toEqual([1, false]);
});

test("whether somebody else stores a change is asked when it is about to be written", async () => {
  const { store, stored, colour } = storedSession();
  colour.change(RED);
  let others = false;
  const held = store.holdNext();
  const first = stored.write(() => ({ operation: "first" }));
  await held.reached;
  colour.change(BLUE);
  const second = stored.store("second", () => others);
  others = true;
  held.letGo();
  await Promise.all([first, second]);
  expect([stored.revision, colour.dirty]).toEqual([1, true]);
});

test("usage is counted once, also what is counted while a write is under way", async () => {
  const { store, stored } = storedSession();
  stored.usage.count(usage(5));
  const held = store.holdNext();
  const first = stored.store("usage");
  await held.reached;
  stored.usage.count(usage(2));
  held.letGo();
  await first;
  expect([stored.head?.ledger, stored.ledger]).toEqual([[usage(5)], [usage(7)]]);
  await stored.store("usage");
  expect([stored.head?.ledger, stored.ledger, stored.usage.dirty]).toEqual([[usage(7)], [usage(7)], false]);
});

test("a new blob alone is no reason to write; the next write takes it along once", async () => {
  const { store, stored, blobs, colour } = storedSession();
  const { hash } = blobs.keep(BLUE);
  await stored.store("nothing");
  expect(store.commits).toEqual([]);
  colour.change(RED);
  await stored.store("paint");
  expect([await store.component(hash), blobs.dirty]).toEqual([BLUE, false]);
  colour.change(BLUE);
  await stored.store("paint");
  expect(store.commits[1]?.components).toEqual([{ hash: contentHash(BLUE), bytes: BLUE }]);
});

test("a blob that was released before the write is not written", async () => {
  const { store, stored, blobs, colour } = storedSession();
  const { hash } = blobs.keep(BLUE);
  blobs.release([hash]);
  colour.change(RED);
  await stored.store("paint");
  expect(await store.component(hash)).toBe(undefined);
});

const FIRST: Head = {
  sessionId: "s",
  revision: 1,
  leaf: "s@1.0",
  turnIndex: 0,
  usage: NO_USAGE,
  components: { colour: contentHash(RED) },
  operation: "create",
};

test("the first head of a child is written as planned, with what became dirty while it was taken on", async () => {
  const { store, stored, shape } = storedSession({ head: FIRST });
  shape.change(BLUE);
  const segment = { id: "s@1", bytes: encode({ id: "s@1", parent: null, messages: [message("s@1.0")] }) };
  await stored.found({ components: [{ hash: contentHash(RED), bytes: RED }], segment });
  expect([stored.revision, stored.dirty]).toEqual([1, false]);
  expect(await store.head("s")).toMatchObject({
    revision: 1,
    leaf: "s@1.0",
    components: { colour: contentHash(RED), shape: contentHash(BLUE) },
  });
  expect(await store.history("s@1.0")).toEqual([message("s@1.0")]);
});

test("a child whose id was taken meanwhile is refused", async () => {
  const { store, stored } = storedSession({ head: { ...FIRST, leaf: null } });
  const components = [{ hash: contentHash(RED), bytes: RED }];
  const { epoch } = stored;
  await store.commit({ head: { ...FIRST, leaf: null, operation: "another" }, expectedRevision: 0, epoch, components });
  await expect(stored.found({ components })).rejects.toMatchObject({ code: "session_exists" });
});

test("a component is read as it is stored, not as it will be", async () => {
  const { stored, colour } = storedSession();
  colour.change(encode("red"));
  await stored.store("paint");
  colour.change(encode("blue"));
  expect(await stored.reader().value("colour")).toBe("red");
});

test("ending a turn clears its journal, and a session without a journal asks for nothing", async () => {
  for (const journals of [true, false]) {
    const { store, stored } = storedSession({ journals });
    await stored.write(() => ({ operation: "turn", endsTurn: true }));
    expect(store.commits[0]?.clearsJournal).toBe(journals ? true : undefined);
  }
});
