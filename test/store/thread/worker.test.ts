import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { MessageChannel, Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { Head } from "../../../src/kernel/index.js";
import {
  acquireStoreLock,
  type BackendAtOnce,
  openLmdb,
  readHistory,
  readWhole,
  StoreClient,
  type StoreOptions,
  type StoreService,
  verifyStore,
} from "../../../src/store/index.js";
import { Caller, decode } from "../../../src/wire/index.js";
import { OwningClient } from "../../support/owning-client.js";
import { component, temporaryFolder, textsOf, turn } from "../commits.js";

// The built entry: a worker thread loads JavaScript.
const ENTRY = new URL("../../../dist/workers/store.js", import.meta.url);
const fixture = (name: string) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));

async function startStore(options: StoreOptions) {
  const worker = new Worker(ENTRY);
  const exited = once(worker, "exit");
  const store = new Caller<StoreService>(worker, { clock: systemClock, name: "store worker", deadlineMs: 30_000 });
  let closed: Promise<void> | undefined;
  const close = () => {
    closed ??= store.to.close(undefined);
    return closed;
  };
  onTestFinished(async () => {
    // Never terminated: a store thread is closed.
    await close();
    await exited;
  });
  await store.to.open(options);
  return {
    store,
    exited,
    close,
    async attach() {
      const { port1, port2 } = new MessageChannel();
      await store.to.attach({ port: port1 }, { transfer: [port1] });
      return port2;
    },
  };
}

for (const kind of ["memory", "path"] as const) {
  test(`a session worker commits to and reads from a store thread (${kind})`, async () => {
    const options = kind === "memory" ? { memory: true as const } : { path: temporaryFolder() };
    const { store, attach, close, exited } = await startStore(options);
    const client = new StoreClient({ clock: systemClock, port: await attach(), options });
    const owner = new OwningClient(client);
    await expect(owner.commit(turn("a", 1))).resolves.toEqual({ revision: 1, replayed: false });
    expect((await client.head("a"))?.revision).toBe(1);
    await owner.commit(turn("a", 2));
    expect((await client.head("a"))?.revision).toBe(2);
    expect(textsOf(await client.history("a@2.0"))).toEqual(["message 1", "message 2"]);
    expect(await client.head("none")).toBeUndefined();
    expect((await store.to.list({})).sessions.map(({ id }) => id)).toEqual(["a"]);
    await expect(owner.commit(turn("a", 9))).rejects.toMatchObject({ code: "head_conflict" });
    expect(await store.to.stats(undefined)).toEqual({
      transactions: 2,
      records: 4,
      commits: 2,
      recorded: 0,
      sessions: 1,
    });
    client.close();
    await close();
    expect(await exited).toEqual([0]);
  });
}

test("a store thread cannot be opened twice, and an error leaves it working", async () => {
  const { store, attach } = await startStore({ memory: true });
  await expect(store.to.open({ memory: true })).rejects.toMatchObject({ code: "store_already_open" });
  const client = new StoreClient({ clock: systemClock, port: await attach(), options: { memory: true } });
  const owner = new OwningClient(client);
  onTestFinished(() => client.close());
  await expect(owner.commit(turn("a", 1))).resolves.toEqual({ revision: 1, replayed: false });
});

test("a store thread that could not open its store says why and can still be closed", async () => {
  const path = temporaryFolder();
  writeFileSync(join(path, "data.mdb"), "not a database");
  const worker = new Worker(ENTRY);
  const exited = once(worker, "exit");
  const store = new Caller<StoreService>(worker, { clock: systemClock, name: "store worker", deadlineMs: 30_000 });
  await expect(store.to.open({ path })).rejects.toMatchObject({ code: "store_damaged", details: { path } });
  await expect(store.to.stats(undefined)).rejects.toMatchObject({ code: "store_not_open" });
  await store.to.close(undefined);
  expect(await exited).toEqual([0]);
});

test("a commit sent while the store thread closes is never acknowledged without being written", async () => {
  const path = temporaryFolder();
  const { attach, close } = await startStore({ path });
  const client = new StoreClient({ clock: systemClock, port: await attach(), options: { path } });
  const owner = new OwningClient(client);
  await owner.commit(turn("a", 1));
  const last = owner.commit(turn("a", 2)).then(
    () => "answered",
    (error: { code: string }) => error.code,
  );
  await close();
  const answer = await last;
  client.close();
  const backend = openLmdb(path);
  onTestFinished(() => backend.close());
  // Which of the two it is depends on which port is read first; an answer without the commit never happens.
  expect([1, 2]).toContain(backend.head("a")?.revision);
  if (answer === "answered") expect(backend.head("a")?.revision).toBe(2);
  else expect(answer).toMatch(/^(store_lost|store_closed)$/);
});

test("a reader in another thread sees every commit as soon as it is acknowledged", async () => {
  const path = temporaryFolder();
  const { attach } = await startStore({ path });
  const writer = new StoreClient({ clock: systemClock, port: await attach(), options: { path } });
  const port = await attach();
  const reader = new Worker(fixture("read-heads.mjs"), { workerData: { port, path }, transferList: [port] });
  onTestFinished(async () => {
    writer.close();
    await reader.terminate();
  });
  const owner = new OwningClient(writer);
  for (let revision = 1; revision <= 50; revision++) {
    await owner.commit(turn("a", revision));
    reader.postMessage("a");
    const [seen] = await once(reader, "message");
    expect(seen).toEqual({ revision, messages: revision });
  }
});

/** What a process acknowledged before it was killed: the last revision and the last record of each session. */
interface Acknowledged {
  readonly commits: Map<string, number>;
  readonly records: Map<string, number>;
}

// quality §3.2: SIGKILL of the process; every acknowledged write is there
test.each([[[]], [["prune"]]])(
  "every acknowledged commit and record survives SIGKILL, and the next process takes the folder over %j",
  async (mode) => {
    const path = temporaryFolder();
    const acknowledged: Acknowledged = { commits: new Map(), records: new Map() };
    for (let round = 1; round <= 3; round++) {
      await runUntilKilled([path, ...mode], 60 * round, acknowledged);
      const lock = acquireStoreLock(path, systemClock);
      const backend = openLmdb(path);
      for (const [sessionId, revision] of acknowledged.commits)
        checkSurvived(backend, sessionId, revision, acknowledged);
      backend.close();
      lock.release();
      expect(verifyStore(path).ok).toBe(true);
    }
    expect(acknowledged.commits.size).toBe(4);
  },
);

function checkSurvived(backend: BackendAtOnce, sessionId: string, revision: number, { records }: Acknowledged): void {
  const head = backend.head(sessionId) as Head;
  expect(head.revision).toBeGreaterThanOrEqual(revision);
  // Nothing torn: every segment below the head is there and whole, and so is the state it names.
  expect(readHistory(backend, head.leaf)).toHaveLength(head.revision);
  const state = backend.component(head.components["plugin:test"] ?? "");
  expect(decode(state ?? new Uint8Array())).toEqual({ sessionId, revision: head.revision });
  // A record is there until its turn is, and then it is not.
  const journal = backend.journal(sessionId).map(({ turnId }) => turnId);
  const next = [`t${head.revision + 1}`];
  if (records.get(sessionId) === head.revision) expect(journal).toEqual(next);
  else expect([[], next]).toContainEqual(journal);
}

/** Runs a process that works through a real store thread; kills it after so many acknowledgements. */
async function runUntilKilled(args: readonly string[], count: number, acknowledged: Acknowledged): Promise<void> {
  const child: ChildProcess = spawn(process.execPath, [fixture("commit-forever.mjs"), ...args], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  let lines = 0;
  for await (const line of createInterface({ input: child.stdout as NonNullable<ChildProcess["stdout"]> })) {
    const [sessionId = "", kind, revision] = line.split(" ");
    acknowledged[kind === "commit" ? "commits" : "records"].set(sessionId, Number(revision));
    if (++lines === count) child.kill("SIGKILL");
  }
  expect(await exited).toEqual([null, "SIGKILL"]);
  expect(lines).toBeGreaterThanOrEqual(count);
}

test("a store thread deletes, prunes, exports and imports while sessions are read from its file", async () => {
  const path = temporaryFolder();
  const { store, attach } = await startStore({ path });
  const client = new StoreClient({ clock: systemClock, port: await attach(), options: { path } });
  const owner = new OwningClient(client);
  onTestFinished(() => client.close());
  const states = [component(1), component(2)];
  for (const [i, state] of states.entries()) {
    const one = turn("a", i + 1, [state]);
    await owner.commit({ ...one, head: { ...one.head, components: { "plugin:test": state.hash } } });
  }
  await owner.commit(turn("gone", 1));
  const file = join(path, "a.session");
  await store.to.exportSession({ sessionId: "a", file });
  expect(await store.to.deleteSession({ sessionId: "gone" })).toBe(true);
  expect(await store.to.prune({ graceMs: 0 })).toEqual({
    segments: { kept: 2, removed: 1, waiting: 0 },
    components: { kept: 1, removed: 1, waiting: 0 },
    journals: { kept: 0, removed: 0, waiting: 0 },
  });
  expect(await store.to.importSession({ bytes: await readWhole(file), sessionId: "copy" })).toEqual({
    sessionId: "copy",
    revision: 2,
  });
  expect((await store.to.list({})).sessions.map(({ id }) => id)).toEqual(["a", "copy"]);
  expect(textsOf(await client.history("copy@2.0"))).toEqual(["message 1", "message 2"]);
  expect(await client.component(states[0]?.hash ?? "")).toBeUndefined();
  await expect(owner.commit(turn("gone", 2))).rejects.toMatchObject({ code: "session_deleted" });
  await expect(store.to.importSession({ bytes: await readWhole(file), sessionId: "gone" })).rejects.toMatchObject({
    code: "session_deleted",
  });
});
