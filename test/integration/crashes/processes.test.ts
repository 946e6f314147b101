import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Session, Troupe, TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { openLmdbReader } from "../../../dist/src/store/index.js";
import { decode } from "../../../dist/src/wire/index.js";
import { ageJournal, Elsewhere, journaled } from "../../support/elsewhere.js";
import { counted } from "../../support/journaled.js";
import {
  fixture,
  PATIENT,
  plugin,
  refusalOf,
  registers,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

// What one process leaves behind when it is killed, and another takes up.

const HOUR = 3_600_000;

/** A tool in a file of the fixtures that writes a line for each of its calls. */
async function recorded(name: string) {
  const file = join(await tempFolder(), name);
  const module = new URL(`${fixture(`tools/${name}.mjs`)}?file=${encodeURIComponent(file)}`);
  const calls = async () => (await readFile(file, "utf8").catch(() => "")).split("\n").filter(Boolean);
  return { tool: { module, permissions: { read: [file], write: [file] } }, calls };
}

const storeOf = ({ store }: TroupeOptions) => (store as { readonly path: string }).path;

async function finished(troupe: Troupe, turns = 1): Promise<Session> {
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === turns);
  return session;
}

const toolResultsOf = async (session: Session) =>
  (await session.messages()).filter(({ role }) => role === "tool").flatMap(({ parts }) => parts);

// state §5
describe("a second process on the same store", () => {
  test("is refused while the first one lives, and finishes its turn when it was killed", async () => {
    const { options, start, lines } = await counted({ tools: { ask: { module: fixture("tools/waits.mjs") } } });
    const first = new Elsewhere(options, { input: "ask answer", extras: { key: "k" } });
    const { key = "" } = await first.says("tool_call_pending");
    const second = new Elsewhere(options, { input: "ask answer" });
    expect(await second.says("refused")).toMatchObject({ code: "store_held" });
    expect(await refusalOf(start())).toMatchObject({ code: "store_held" });
    await first.kill();
    const troupe = await start();
    await troupe.completeTool(key, { value: "yes" });
    const session = await finished(troupe);
    // The same turn for whoever knows its name, and no second one.
    expect(await session.turn("ask answer", { key: "k" })).toMatchObject({ turnIndex: 1, text: "answer" });
    expect(await refusalOf(session.turn("something else", { key: "k" }))).toMatchObject({ code: "turn_key_conflict" });
    expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
  });

  test("asked by its key for the turn that it is about to take up, gives that turn's result", async () => {
    const { options, start, lines } = await counted({ tools: { ask: { module: fixture("tools/waits.mjs") } } });
    const first = new Elsewhere(options, { input: "ask answer", extras: { key: "k" } });
    const { key = "" } = await first.says("tool_call_pending");
    await first.kill();
    const troupe = await start();
    const turn = (await troupe.session("s")).turn("ask answer", { key: "k" });
    await troupe.completeTool(key, { value: "yes" });
    expect(await turn).toMatchObject({ turnIndex: 1, text: "answer", toolCalls: [{ output: { value: "yes" } }] });
    expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
  });
});

describe("a tool call that waits with a deadline", () => {
  async function killedWhileWaiting() {
    const { tool, calls } = await recorded("waits-until");
    const { options, start } = await counted({ tools: { ask: tool } });
    const first = new Elsewhere(options, { input: "ask answer" });
    const { key = "" } = await first.says("tool_call_pending");
    await first.kill();
    return { path: storeOf(options), start, calls, key };
  }

  test("is late at once when the deadline passed while no process was there", async () => {
    const { path, start, calls, key } = await killedWhileWaiting();
    ageJournal(path, 2 * HOUR);
    const troupe = await start();
    const session = await finished(troupe);
    expect(await toolResultsOf(session)).toMatchObject([{ status: "failure" }]);
    expect(JSON.stringify(await toolResultsOf(session))).toContain("tool_completion_timeout");
    expect(await calls()).toEqual(["asked"]);
    expect(await refusalOf(troupe.completeTool(key, { value: "yes" }))).toMatchObject({ code: "completion_unknown" });
  });

  test("has what was left of it, and not the whole of it again", async () => {
    const { path, start, calls } = await killedWhileWaiting();
    // Of the hour a moment is left. Counted anew, nothing of this would happen before the test gives up.
    ageJournal(path, HOUR - 300);
    const session = await finished(await start());
    expect(JSON.stringify(await toolResultsOf(session))).toContain("tool_completion_timeout");
    expect(await calls()).toEqual(["asked"]);
  });

  test("can be answered as long as it has not passed", async () => {
    const { path, start, calls, key } = await killedWhileWaiting();
    ageJournal(path, HOUR / 2);
    const troupe = await start();
    await troupe.completeTool(key, { value: "yes" });
    expect(await toolResultsOf(await finished(troupe))).toMatchObject([{ status: "success", text: "yes" }]);
    expect(await calls()).toEqual(["asked"]);
  });
});

// turn §8.58
test("a pause before a retry goes on where it was, and its tool is not called before it has ended", async () => {
  const { tool, calls } = await recorded("busy-once");
  const { options, start, lines } = await counted({ tools: { work: tool } });
  const path = storeOf(options);
  const first = new Elsewhere(options, { input: "work answer" });
  await first.says("tool_call_retry");
  await journaled(path, ":sleep");
  await first.kill();
  const written = ageJournal(path, HOUR - 3_000);
  const [began] = [...written].filter(([key]) => key.endsWith(":sleep")).map(([, at]) => at);
  const session = await finished(await start());
  expect(await toolResultsOf(session)).toMatchObject([{ status: "success", text: "done" }]);
  const [, second, ...more] = await calls();
  expect(Number(second)).toBeGreaterThanOrEqual((began as number) + HOUR);
  expect(more).toEqual([]);
  expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
});

describe("the plugin options a session was opened with", () => {
  // With them the plugin registers a query.
  const plugins = [{ module: registers("test.registers"), tier: "inline" }] as const;
  const pluginOptions = { "test.registers": { queries: ["given"] } };
  const given = (session: Session) =>
    session.query("given").then(
      () => true,
      ({ code }) => code,
    );

  test("are those of the turn that the next process takes up, until the session is opened with others", async () => {
    const { options, start } = await counted({ tools: { ask: { module: fixture("tools/waits.mjs") } }, plugins });
    const first = new Elsewhere(options, { input: "ask answer", pluginOptions });
    const { key = "" } = await first.says("tool_call_pending");
    await first.kill();
    const troupe = await start();
    await troupe.completeTool(key, { value: "yes" });
    const session = await finished(troupe);
    expect(await given(session)).toBe(true);
    await session.close();
    expect(await given(await troupe.session("s"))).toBe("operation_unknown");
  });

  test("are kept with what a session begins, and replaced as a whole by the next opening's", async () => {
    const { options, start } = await counted({ plugins });
    const { path } = options.store as { readonly path: string };
    const kept = () => {
      const reader = openLmdbReader(path);
      const row = reader.row({ table: "openings", session: "s", key: "" });
      reader.close();
      return row && decode(row.value);
    };
    const troupe = await start();
    const opened = async (given?: typeof pluginOptions | object) => {
      const session = await troupe.session("s", given === undefined ? {} : { pluginOptions: given as never });
      const before = kept();
      await session.turn("hi");
      await session.close();
      return [before, kept()];
    };
    const others = { "test.other": { a: 1 } };
    // Opening stores nothing; what is begun then does.
    expect(await opened(pluginOptions)).toEqual([undefined, pluginOptions]);
    expect(await opened(others)).toEqual([pluginOptions, others]);
    expect(await opened()).toEqual([others, undefined]);
  });

  test("are stored without what the plugin calls secret, and the turn is taken up without it", async () => {
    const module = new URL(`${registers("test.registers")}&secret=token`);
    const told = [{ module, tier: "inline" }] as const;
    const { options, start } = await counted({ tools: { ask: { module: fixture("tools/waits.mjs") } }, plugins: told });
    const secret = "correct horse battery staple";
    const given = { "test.registers": { queries: ["given"], token: secret } };
    const first = new Elsewhere(options, { input: "ask answer", pluginOptions: given });
    const { key = "" } = await first.says("tool_call_pending");
    await first.kill();
    const { path } = options.store as { readonly path: string };
    expect((await readFile(join(path, "data.mdb"))).includes(secret)).toBe(false);
    const troupe = await start();
    await troupe.completeTool(key, { value: "yes" });
    const session = await finished(troupe);
    expect(await session.query("given")).toBeDefined();
  });

  test("that a fork is given are stored without what the plugin calls secret, and its plugin is told all of them", async () => {
    const module = new URL(`${registers("test.registers")}&secret=token`);
    const { options, start } = await counted({ plugins: [{ module, tier: "inline" }] });
    const troupe = await start();
    const session = await troupe.session("s");
    await session.turn("hi");
    const secret = "tr0ub4dor and three";
    const pluginOptions = { "test.registers": { queries: ["given"], token: secret } };
    const child = await session.fork({ authority: { pluginOptions } });
    expect(await child.query("given")).toBeDefined();
    await child.turn("hi");
    const { path } = options.store as { readonly path: string };
    expect((await readFile(join(path, "data.mdb"))).includes(secret)).toBe(false);
    await child.close();
    expect(await (await troupe.session(child.id)).query("given")).toBeDefined();
  });

  test("are told to the worker that has to open it again", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, plugins });
    const session = await troupe.session("s", { pluginOptions });
    const other = await troupe.session("other");
    await troupe.kill({ sessionWorker: 0 });
    expect([await given(session), await given(other)]).toEqual([true, "operation_unknown"]);
  });
});

describe("turns a command asked for", () => {
  const ledger = { module: plugin("ledger"), ...PATIENT };
  /** Lets no turn begin. */
  const refusing = { module: plugin("scriptable"), options: { beforeTurn: "throw" }, ...PATIENT };
  const asked = ["first of the ledger", "second of the ledger"];
  /** What so many turns began with; the store may have the last one a moment before its session says so. */
  const userTexts = async (session: Session, turns: number) => {
    await until("the session has its turns", async () => (await session.info()).turns === turns);
    return (await session.messages())
      .filter(({ role }) => role === "user")
      .map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
  };

  /** Resolves when session "s" has so many turns in the store, which nobody opened it for. */
  async function stored(path: string, turns: number): Promise<void> {
    const reader = openLmdbReader(path);
    try {
      await until("the turns are stored", () => reader.head("s")?.turnIndex === turns);
    } finally {
      reader.close();
    }
  }

  test("of a process that was killed behind the receipt run in the next one, once each, also asked for again by the key", async () => {
    const { options, start } = await counted({ plugins: [ledger] });
    const killed = { ...options, plugins: [ledger, refusing] };
    const first = new Elsewhere(killed, { command: "ledger.queue", extras: { key: "k" } });
    const { receipt } = await first.says("receipt");
    expect(receipt).toMatchObject({ turns: asked });
    await first.kill();
    const troupe = await start();
    await stored(storeOf(options), 2);
    const session = await troupe.session("s");
    expect(await session.command("ledger.queue", {}, { key: "k" })).toEqual(receipt);
    await session.turn("last");
    const texts = await userTexts(session, 3);
    // Which of the two was being refused when the process was killed is chance, and that one is taken up first.
    expect([texts.slice(0, 2).sort(), texts[2]]).toEqual([asked, "last"]);
    expect(await session.inputs()).toEqual([]);
  });

  const waiting = { first: { module: fixture("tools/waits.mjs") } };
  /** The first turn calls the tool `first`, which waits for an answer. */
  const answered = async (troupe: Troupe) => {
    const [call] = (await troupe.pending()).calls;
    expect(call).toMatchObject({ sessionId: "s", turnId: "t1", toolName: "first" });
    await troupe.completeTool(call?.key as string, { value: "yes" });
  };

  test("of a process that was killed while the first of them ran all run in the next one, none twice", async () => {
    const { options, start, lines } = await counted({ plugins: [ledger], tools: waiting });
    const first = new Elsewhere(options, { command: "ledger.queue", extras: { key: "k" } });
    await first.says("receipt");
    await journaled(storeOf(options), /^tools:\d+:\w+:1$/);
    await first.kill();
    const troupe = await start();
    await answered(troupe);
    await stored(storeOf(options), 2);
    expect(await userTexts(await troupe.session("s"), 2)).toEqual(asked);
    expect(await lines()).toEqual(["model t1 0", "model t1 1", "model t2 0"]);
  });

  test("of a session worker that died under the first of them are taken up again without a message to their session", async () => {
    const { options, start } = await counted({ plugins: [ledger], tools: waiting });
    const troupe = await start();
    const session = await troupe.session("s");
    await session.command("ledger.queue");
    await journaled(storeOf(options), /^tools:\d+:\w+:1$/);
    await troupe.kill({ sessionWorker: 0 });
    await journaled(storeOf(options), "resumed:0");
    await answered(troupe);
    await stored(storeOf(options), 2);
    expect(await userTexts(session, 2)).toEqual(asked);
  });
});
