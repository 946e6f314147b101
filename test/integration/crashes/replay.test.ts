import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { open } from "lmdb";
import { scriptedModel, switchFrame, type Troupe } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import { openLmdb } from "../../../dist/src/store/index.js";
import { counted, gates } from "../../support/journaled.js";
import { EMPTY_OBJECT, fixture, PATIENT, plugin, refusalOf, tempFolder, until } from "../../support/runtime.js";

// What a turn that is taken up finds, and what happens to it meanwhile.

const cell = (...lines: string[]) => `\`\`\`calc\n${lines.join("\n")}\n\`\`\``;

describe("a plugin worker that is killed while a turn is taken up", () => {
  const counts = { module: plugin("counts-stream"), ...PATIENT };

  test("gives its replacement the state that the turn's journal has", async () => {
    const gate = gates();
    const { start, lines } = await counted({ plugins: [counts], tools: { wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("tally wait answer");
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
    await troupe.kill({ plugin: "test.counts-stream" });
    gate.open("wait");
    expect(await turn).toMatchObject({ modelCalls: 3, text: "answer" });
    expect(await session.query("stream.state")).toEqual({ begun: 1, chunks: ["answer"], calls: 1 });
    expect(await lines()).toEqual(["model t1 0", "model t1 1", "model t1 2"]);
    // What came with the commit is what the next life of the session has.
    await troupe.kill({ plugin: "test.counts-stream" });
    expect((await session.turn("tally done")).toolCalls).toMatchObject([{ output: { value: 2 } }]);
  });

  test("together with the session worker, again and again, costs the turn nothing", async () => {
    const gate = gates();
    const { start, lines } = await counted({ plugins: [counts], tools: { wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("tally wait answer");
    for (let calls = 1; calls <= 3; calls++) {
      await until("the tool runs", () => gate.calls.length === calls);
      await Promise.all([troupe.kill({ plugin: "test.counts-stream" }), troupe.kill({ sessionWorker: 0 })]);
    }
    await until("the tool runs once more", () => gate.calls.length === 4);
    gate.open("wait");
    expect((await turn).text).toBe("answer");
    expect(await session.query("stream.state")).toEqual({ begun: 1, chunks: ["answer"], calls: 1 });
    expect(await lines()).toEqual(["model t1 0", "model t1 1", "model t1 2"]);
  });
});

describe("a plugin worker that is killed in a hook of a turn that is taken up", () => {
  test("costs the turn nothing: the hook is asked again on the next thread", async () => {
    const gate = gates();
    const { start, lines } = await counted({
      plugins: [{ module: plugin("gate"), deadlineMs: 600_000, ...PATIENT }],
      tools: { wait: gate.tool("wait") },
    });
    const troupe = await start();
    // Named after the hook that waits, once in every life of the plugin's thread.
    const session = await troupe.session("assistantResponse");
    const atTheHook = () =>
      until("the turn is at the hook", () => session.query<boolean>("gate.reached").catch(() => false));
    const turn = session.turn("wait answer");
    await atTheHook();
    await session.query("gate.open");
    await until("the tool runs", () => gate.calls.length === 1);
    await Promise.all([troupe.kill({ plugin: "test.gate" }), troupe.kill({ sessionWorker: 0 })]);
    await atTheHook();
    await troupe.kill({ plugin: "test.gate" });
    await atTheHook();
    await session.query("gate.open");
    await until("the tool runs again", () => gate.calls.length === 2);
    gate.open("wait");
    expect(await turn).toMatchObject({ turnIndex: 1, text: "answer" });
    expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
  });
});

/** The session worker dies while a tool runs; in the turn that is taken up the tool is let through. */
async function dieInTool(troupe: Troupe, gate: ReturnType<typeof gates>): Promise<void> {
  await until("the tool runs", () => gate.calls.length === 1);
  await troupe.kill({ sessionWorker: 0 });
  await until("the tool runs again", () => gate.calls.length === 2);
  gate.open("wait");
}

describe("what a turn left behind that is not in its messages", () => {
  test("the state of a plugin that saw an answer come is that of one answer", async () => {
    const gate = gates();
    const turns = [[{ text: "one two", toolCalls: [{ tool: "wait", args: {} }] }, { text: "three" }]];
    const { start } = await counted({
      model: scriptedModel({ turns }),
      plugins: [{ module: plugin("counts-stream"), tier: "inline" }],
      tools: { wait: gate.tool("wait") },
    });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await dieInTool(troupe, gate);
    await turn;
    const { begun, chunks } = await session.query<{ begun: number; chunks: string[] }>("stream.state");
    expect([begun, chunks.join("")]).toEqual([1, "one twothree"]);
  });

  // turn §8.6
  test("code that ran is not run again, and its variables are as it left them", async () => {
    const gate = gates();
    const turns = [
      [{ text: cell("x = 2") }, { text: cell("x = x * 3", "call wait", "x = x + 1") }, { text: cell("finish x") }],
      [{ text: cell("finish x + 10") }],
    ];
    const { start } = await counted({
      model: scriptedModel({ turns }),
      protocol: { module: plugin("calc") },
      tools: { wait: gate.tool("wait") },
    });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("go");
    await dieInTool(troupe, gate);
    // 2 * 3 + 1: the cell that was interrupted began again from what the one before it left.
    expect((await turn).outcome).toMatchObject({ type: "finished", value: 7 });
    expect((await session.turn("more")).outcome).toMatchObject({ value: 17 });
  });

  test("code that left nothing behind leaves nothing when it is not run again", async () => {
    const gate = gates();
    const turns = [
      [{ text: cell("x = 2") }, { text: "done" }],
      [{ text: cell("forget") }, { text: cell("call wait", "print x") }, { text: "done" }],
    ];
    const { start } = await counted({
      model: scriptedModel({ turns }),
      protocol: { module: plugin("calc") },
      tools: { wait: gate.tool("wait") },
    });
    const troupe = await start();
    const session = await troupe.session("s");
    await session.turn("remember");
    const turn = session.turn("forget");
    await dieInTool(troupe, gate);
    await turn;
    expect(JSON.stringify(await session.messages())).toContain("x is not defined");
  });
});

describe("between the opening of a session and its turn being taken up", () => {
  test("what is said and what is answered reaches the turn, once", async () => {
    const file = join(await tempFolder(), "held");
    const { start, lines } = await counted({
      tools: { ask: { module: fixture("tools/waits.mjs") } },
      plugins: [{ module: plugin("holds-opening"), tier: "inline", deadlineMs: 600_000, options: { file } }],
    });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("ask answer");
    let key = "";
    for await (const activity of turn) {
      if (activity.type !== "tool_call_pending") continue;
      ({ key } = activity);
      break;
    }
    writeFileSync(file, "");
    await troupe.kill({ sessionWorker: 0 });
    await until("the session is being opened", () => existsSync(`${file}.reached`));
    const said = Promise.all([session.steer("more", { key: "k" }), session.steer("more", { key: "k" })]);
    const answers = Promise.allSettled([
      troupe.completeTool(key, { value: "first" }),
      troupe.completeTool(key, { value: "second" }),
    ]);
    // They are on their way: asked behind them, this one has reached the worker.
    const asked = session.inputs();
    rmSync(file);
    await said;
    await asked;
    expect((await answers).map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    const result = await turn;
    expect(result).toMatchObject({ turnIndex: 1, text: "answer", toolCalls: [{ output: { status: "success" } }] });
    const texts = (await session.messages()).flatMap(({ role, parts }) =>
      role === "user" ? parts.map((part) => ("text" in part ? part.text : part.type)) : [],
    );
    expect(texts).toEqual(["ask answer", "more"]);
    expect(await session.inputs()).toEqual([]);
    expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
  });
});

describe("a turn with a key that goes through frames", () => {
  const leave = (name: string) => ({
    description: "Leaves",
    inputSchema: EMPTY_OBJECT,
    execute: () => switchFrame({ frameId: name, task: `wait then ${name}` }),
  });

  test("is answered with all of them, also when it is asked for again", async () => {
    const { start } = await counted({ tools: { leave: leave("second"), wait: gates().quick("wait") } });
    const session = await (await start()).session("s");
    const first = await session.turn("leave", { key: "k" });
    expect(first).toMatchObject({ turnIndex: 2, before: [{ turnIndex: 1, outcome: { type: "frame_switch" } }] });
    expect(await session.turn("leave", { key: "k" })).toEqual(first);
  });

  test("is the same turn when a crash comes in the middle of its second frame", async () => {
    const gate = gates();
    const { start, lines } = await counted({ tools: { leave: leave("second"), wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("leave", { key: "k" });
    await until("the second frame's tool runs", () => gate.calls.length === 1);
    await troupe.kill({ sessionWorker: 0 });
    await until("it runs again", () => gate.calls.length === 2);
    gate.open("wait");
    const result = await turn;
    expect(result).toMatchObject({ turnIndex: 2, text: "then", before: [{ turnIndex: 1 }] });
    expect(await session.turn("leave", { key: "k" })).toEqual(result);
    expect(await lines()).toEqual(["model t1 0", "model t2 0", "model t2 1"]);
  });

  for (const left of ["in the middle of its second frame", "between its frames"] as const) {
    test(`is finished under its key by the next process, when it was left ${left}`, async () => {
      const gate = gates();
      const tools = { leave: leave("second"), wait: gate.tool("wait") };
      const { start, lines, options } = await counted({ tools });
      const troupe = await start();
      const turn = (await troupe.session("s")).turn("leave", { key: "k" });
      await until("the second frame's tool runs", () => gate.calls.length === 1);
      await troupe.close();
      // What is stored is stored, and what was left is told.
      expect(await turn).toMatchObject({ outcome: { type: "frame_switch" }, issues: [{ code: "turn_suspended" }] });
      // As a process leaves it that dies before the second turn is written down.
      if (left === "between its frames") forgetJournal((options.store as { path: string }).path);
      const again = await start();
      const session = await again.session("s");
      await until("it runs again", () => gate.calls.length === 2);
      gate.open("wait");
      const result = await session.turn("leave", { key: "k" });
      expect(result).toMatchObject({ turnIndex: 2, text: "then", before: [{ turnIndex: 1 }] });
      expect(await lines()).toEqual(
        left === "between its frames"
          ? ["model t1 0", "model t2 0", "model t2 0", "model t2 1"]
          : ["model t1 0", "model t2 0", "model t2 1"],
      );
    });
  }
});

describe("a turn that cannot be taken up, because its store cannot be read", () => {
  test("is kept, does not mix with what is asked meanwhile, and goes on when it can", async () => {
    const gate = gates();
    const { start, lines, options } = await counted({ tools: { wait: gate.tool("wait") } });
    const { path } = options.store as { path: string };
    const troupe = await start();
    const session = await troupe.session("s");
    await session.turn("one");
    const turn = session.turn("wait two");
    const refused = refusalOf(turn);
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.close();
    expect(await refused).toMatchObject({ code: "turn_suspended" });
    const segment = takeSegment(path, "s@1");
    const again = await start();
    const session2 = await again.session("s");
    // Asked behind the turn that cannot be taken up.
    const third = await refusalOf(session2.turn("three"));
    expect([third.code, third.retryable]).toEqual(["session_stale", true]);
    segment.putBack();
    const asked = session2.turn("three");
    await until("the tool runs again", () => gate.calls.length === 2);
    gate.open("wait");
    expect(await asked).toMatchObject({ turnIndex: 3, text: "three" });
    expect(await lines()).toEqual(["model t1 0", "model t2 0", "model t2 1", "model t3 0"]);
  });
});

function forgetJournal(path: string): void {
  const store = openLmdb(path);
  const expectedRevision = store.head("s")?.revision ?? 0;
  const epoch = store.claim("s", { owner: "a test", take: "always" });
  const [cleared] = store.write([{ kind: "clear", sessionId: "s", expectedRevision, epoch }]);
  store.close();
  expect(cleared?.ok).toBe(true);
}

/** Takes a part of the history away, as a damaged disk would. */
function takeSegment(path: string, id: string) {
  const root = open({ path, noSubdir: false, overlappingSync: false, encoding: "binary" });
  onTestFinished(() => root.close());
  const segments = root.openDB<Buffer, string>({ name: "segments", encoding: "binary" });
  const bytes = segments.get(id);
  if (bytes === undefined) throw new Error(`There is no segment ${id}.`);
  segments.removeSync(id);
  return { putBack: () => segments.putSync(id, bytes) };
}
