import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { scriptedModel, type TroupeEvent } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { deferred } from "../../../src/async/index.js";
import { EVENT_TYPES } from "../../../src/trace/index.js";
import { counted, gates } from "../../support/journaled.js";
import { listening } from "../../support/listening.js";
import {
  fixture,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

// Events of what seldom happens, as runtimes raise them. The others: diagnosis.test.ts, supervision.test.ts, node-debug.test.ts.

const GUARD = fixture("events/faulty.mjs");
/** An event's own fields, without when it happened. */
const plain = ({ at: _at, ...fields }: TroupeEvent) => fields;

test("a turn that is stored and did not finish is told once with its reason, and a cancelled one is not told", async () => {
  const { onEvent, events, first } = listening();
  const model = scriptedModel({ id: "gone", turns: [[{ fail: { status: 401 } }]] });
  const troupe = await startTroupe({ onEvent, model, tools: {} });
  const session = await troupe.session("chat-42", { tenant: "acme" });
  const cancelled = session.turn("my card is secret-word");
  cancelled.cancel("enough");
  expect((await cancelled).outcome).toMatchObject({ reason: "cancelled" });
  await session.turn("my card is secret-word");
  expect(await first("turn_stopped")).toMatchObject({
    session: "chat-42",
    tenant: "acme",
    turn: "t2",
    reason: "provider_error",
    code: "model_auth_failed",
    error: { code: "model_auth_failed", message: "The script makes this model call fail." },
    count: 1,
  });
  await troupe.close();
  expect(events.map(({ type }) => type)).toEqual(["turn_stopped"]);
  expect(JSON.stringify(events)).not.toContain("secret-word");
});

test("a model that gives no answer is told with the one that is asked in its place", async () => {
  const { onEvent, of } = listening();
  const troupe = await startTroupe({
    onEvent,
    model: scriptedModel({ id: "large", turns: [[{ fail: { status: 401 } }]] }),
    fallbackModels: [scriptedModel({ id: "small", turns: [[{ text: "Hello." }]] })],
  });
  await (await troupe.session("chat-42")).turn("hi");
  await troupe.close();
  expect(of("model_fallback").map(plain)).toMatchObject([
    { session: "chat-42", turn: "t1", from: "large", to: "small", step: 0, code: "model_auth_failed", count: 1 },
  ]);
});

test("a session worker that is recycled is told once, and none of it as a loss", async () => {
  const { onEvent, events } = listening();
  const troupe = await startTroupe({ onEvent, sessionWorkers: 1 });
  await (await troupe.session("chat-42")).turn("hi");
  await troupe.recycle(0);
  await troupe.close();
  expect(events.map(plain)).toEqual([{ type: "worker_recycled", thread: "Session worker 0", recycled: 1, count: 1 }]);
});

test("a plugin that holds the thread of its group until it is lost is told to have threads of its own", async () => {
  const { onEvent, first } = listening();
  const plugins = ["grouped.mjs?id=calm", "spins"].map((name) =>
    name === "spins"
      ? {
          module: GUARD,
          group: "ours",
          blockedMs: 500,
          options: { sessions: "spins", beforeTurn: { spins: true } },
        }
      : { module: fixture(`plugins/${name}`), group: "ours", ...PATIENT, blockedMs: 500 },
  );
  const troupe = await startTroupe({ ...RESIDENT, onEvent, sessionWorkers: 1, plugins });
  await refusalOf((await troupe.session("spins")).turn("hi"));
  expect(await first("plugin_separated")).toMatchObject({ plugin: "acme.guard", group: "ours", count: 1 });
});

test("a store whose thread dies is told once", async () => {
  const { onEvent, first, of } = listening();
  const troupe = await startTroupe({ onEvent });
  const session = await troupe.session("chat-42");
  await troupe.kill({ store: true });
  await refusalOf(session.turn("hi"));
  expect(await first("store_lost")).toMatchObject({ error: { code: "store_lost" }, count: 1 });
  await troupe.close();
  expect(of("store_lost")).toHaveLength(1);
});

test("what a turn tells again that a crash left behind says so, and what it then does for the first time does not", async () => {
  const { onEvent, of } = listening();
  const gate = gates();
  const { start } = await counted({
    onEvent,
    plugins: [
      {
        module: GUARD,
        ...PATIENT,
        options: { beforeToolCall: { throws: "no limits" }, afterToolCall: { throws: "no ledger" } },
        onFailure: "skip",
      },
    ],
    tools: { wait: gate.tool("wait") },
  });
  const troupe = await start();
  const turn = (await troupe.session("chat-42")).turn("wait");
  await until("the tool runs", () => gate.calls.length === 1);
  await until("the hook's failure is told", () => of("hook_failed").length === 1);
  await troupe.kill({ sessionWorker: 0 });
  await until("the tool runs again", () => gate.calls.length === 2);
  gate.open("wait");
  expect((await turn).outcome.type).toBe("finished");
  await troupe.close();
  const told = of("hook_failed").map(({ hook, turn, replaying, count }) => ({ hook, turn, replaying, count }));
  // The second of a hook may be told behind others: it is joined with what else comes within a second.
  expect(told.sort((a, b) => b.hook.localeCompare(a.hook))).toEqual([
    { hook: "beforeToolCall", turn: "t1", replaying: undefined, count: 1 },
    { hook: "beforeToolCall", turn: "t1", replaying: true, count: 1 },
    { hook: "afterToolCall", turn: "t1", replaying: undefined, count: 1 },
  ]);
});

test("a listener and a logger may call the runtime: ask a session, open one, kill a thread, and close it all", async () => {
  const said: unknown[] = [];
  const closed = deferred();
  const logged = () => void troupe.stats().then(({ hooks }) => said.push(Object.keys(hooks).length > 0));
  const troupe = await startTroupe({
    ...RESIDENT,
    sessionWorkers: 1,
    plugins: [{ module: GUARD, ...PATIENT, options: { sessions: "chat", beforeTurn: { throws: "the guard broke" } } }],
    log: { debug: () => {}, info: () => {}, warn: () => {}, error: logged },
    async onEvent(event) {
      if (event.type !== "turn_refused") return;
      // In the failed session itself, in another one, and with what its plugin runs on.
      said.push((await (await troupe.session(event.session)).view()).running);
      said.push((await (await troupe.session("pager")).turn("hi")).outcome.type);
      await troupe.kill({ plugin: "acme.guard" });
      said.push((await (await troupe.session("pager")).turn("again")).outcome.type);
      await troupe.close();
      closed.resolve();
    },
  });
  await refusalOf((await troupe.session("chat-42")).turn("hi"));
  await closed.promise;
  expect(said.filter((each) => each !== true)).toEqual([null, "finished", "finished"]);
  expect(said).toContain(true);
});

test("a write that a hanging disk keeps for more than a second is told when it is done, with how long it took", async () => {
  const { onEvent, first, of } = listening();
  const path = await tempFolder();
  const troupe = await startTroupe({ onEvent, sessionWorkers: 1, store: { path } });
  const session = await troupe.session("chat-42", { tenant: "acme" });
  await session.turn("hi");
  const disk = spawn(process.execPath, [fixture("programs/holds-store.mjs").pathname, path]);
  onTestFinished(() => void disk.kill("SIGKILL"));
  await once(disk.stdout, "data");
  const nodes = [{ kind: "message", message: { role: "user", text: "a note" } }] as const;
  const appended = session.append({ nodes });
  // The store's thread answers nobody: it waits in the write.
  await until("the store's thread is in the write", () =>
    Promise.race([
      troupe.has("nobody").then(() => false),
      new Promise<boolean>((resolve) => setTimeout(resolve, 100, true)),
    ]),
  );
  await new Promise((resolve) => setTimeout(resolve, 1_100));
  disk.kill("SIGKILL");
  expect(await appended).toMatchObject({ status: "appended" });
  const slow = await first("store_slow");
  expect(slow).toMatchObject({ session: "chat-42", thread: "Session worker 0", write: expect.any(String) });
  expect(slow.tookMs).toBeGreaterThanOrEqual(1_000);
  expect(of("store_slow")).toHaveLength(1);
});

test("what a listener that takes for ever cannot keep up with is counted, and the runtime waits for nothing of it", async () => {
  const told: TroupeEvent[] = [];
  const gate = deferred();
  const troupe = await startTroupe({
    ...RESIDENT,
    sessionWorkers: 1,
    plugins: [{ module: plugin("keeps-beginning"), tier: "inline", options: { keep: 0 } }],
    onEvent: (event) => {
      told.push(event);
      return gate.promise;
    },
  });
  // One is at the listener, 1,000 wait for it.
  const compacts = async (_: unknown, n: number) => {
    const session = await troupe.session(`chat-${n}`);
    await session.turn("hi");
    for (let times = 0; times < 32; times++) expect(await session.compact()).toBe(true);
    expect((await session.turn("still here?")).outcome.type).toBe("finished");
  };
  await Promise.all(Array.from({ length: 32 }, compacts));
  expect(told).toHaveLength(1);
  gate.resolve();
  await until("the last is told", () => told.at(-1)?.type === "events_dropped");
  expect(told.map(({ type }) => type)).toEqual([...new Array(1_001).fill("context_compacted"), "events_dropped"]);
  expect(told.at(-1)).toMatchObject({ type: "events_dropped", dropped: 23, count: 1 });
});

test("every type of event is looked for in a test that runs a runtime", async () => {
  const all = new URL("..", import.meta.url);
  const files = (await readdir(all, { recursive: true })).filter((file) => file.endsWith(".test.ts"));
  const texts = await Promise.all(files.map((file) => readFile(new URL(file, all), "utf8")));
  const isAsserted = (type: string) => {
    const asserted = new RegExp(`(first|of)\\("${type}"\\)|type(: | === )"${type}"|TROUPE(:LANE)? ${type}`);
    return texts.some((text) => asserted.test(text));
  };
  const missing = Object.keys(EVENT_TYPES).filter((type) => !isAsserted(type));
  expect(missing).toEqual([]);
});
