import { createTroupe, switchFrame } from "troupe";
import { describe, expect, test } from "vitest";
import { openLmdb } from "../../../src/store/index.js";
import { contentHash, encode } from "../../../src/wire/index.js";
import { CrashFolder } from "../../support/crash-matrix.js";
import { counted, gates } from "../../support/journaled.js";
import { EMPTY_OBJECT, oneToolCall, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

// quality §3.2: what the reference turn does not pass through.

describe("an answer of the model that the turn goes on from", () => {
  test("is not paid for again, although nothing was built on it when it came", async () => {
    const gate = gates();
    const { start, lines } = await counted({ tools: { wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("wait one hang");
    await until("the tool runs", () => gate.calls.length === 1);
    await session.steer("more", { boundary: "before_completion" });
    gate.open("wait");
    await until("the third call is made", async () => (await lines()).length === 3);
    await troupe.kill({ sessionWorker: 0 });
    await until("the third call is made again", async () => (await lines()).length === 4);
    turn.cancel();
    await turn;
    expect(await lines()).toEqual(["model t1 0", "model t1 1", "model t1 2", "model t1 2"]);
    expect((await session.messages()).map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
      "user",
    ]);
  });
});

describe("a turn that was stored and whose worker died before it was answered", () => {
  const holds = { module: plugin("holds-stored"), tier: "inline", deadlineMs: 600_000 } as const;

  test("is not run again, whatever was stored behind it", async () => {
    const { start, lines } = await counted({ plugins: [holds] });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("one");
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    await session.enqueue("two");
    await troupe.kill({ sessionWorker: 0 });
    expect(await refusalOf(turn)).toMatchObject({ code: "turn_result_lost", details: { turnIndex: 1 } });
    await until("what waited is done", async () => (await session.info()).turns === 2);
    expect(await lines()).toEqual(["model t1 0", "model t2 0"]);
  });

  test("is answered when it was asked for by a key", async () => {
    const { start, lines } = await counted({ plugins: [holds] });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("one", { key: "k" });
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    await troupe.kill({ sessionWorker: 0 });
    expect(await turn).toMatchObject({ turnIndex: 1, text: "one" });
    expect(await lines()).toEqual(["model t1 0"]);
  });
});

describe("closing", () => {
  test("keeps the turn it interrupts, and does not say so of those behind it", async () => {
    const gate = gates();
    const { start, lines } = await counted({ tools: { wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turns = [session.turn("wait one"), session.turn("two"), session.turn("three")];
    const refusals = Promise.all(turns.map(refusalOf));
    await until("the tool runs", () => gate.calls.length === 1);
    await troupe.close();
    expect((await refusals).map(({ code }) => code)).toEqual(["turn_suspended", "session_closed", "session_closed"]);
    const again = await start();
    await until("the tool runs again", () => gate.calls.length === 2);
    gate.open("wait");
    const session2 = await again.session("s");
    await until("the turn is stored", async () => (await session2.info()).turns === 1);
    expect((await session2.turn("four")).turnIndex).toBe(2);
    expect(await lines()).toEqual(["model t1 0", "model t1 1", "model t2 0"]);
  });
});

describe("a turn that was asked for with something of no use", () => {
  test("is still that turn when it is taken up again", async () => {
    const crash = await CrashFolder.create();
    const troupe = await crash.start("inline");
    crash.order("s", { line: ">afterTurn", kills: "thread", delayMs: 0 });
    const session = await troupe.session("s");
    const result = await session.turn("x".repeat(4 * 1024 * 1024 + 1));
    expect(result.outcome).toMatchObject({ type: "stopped", reason: "invalid_input" });
    expect(crash.counts("s")).toMatchObject({ afterTurn: 2, turnPersisted: 1 });
    expect(crash.lines("s")).not.toContain(">model:0");
  });
});

describe("a turn that leaves for another frame", () => {
  const frame = {
    frameId: "second",
    reason: "switch",
    nodes: [],
    origin: { kind: "protocol" },
    task: { id: "t1:frame", text: "Go on." },
  };
  const bytes = encode(frame);

  test("says so in the write that stores it, and gets there although a crash comes between", async () => {
    const path = await tempFolder();
    const leave = {
      description: "Leaves",
      inputSchema: EMPTY_OBJECT,
      execute: () => switchFrame({ frameId: "second", task: "Go on." }),
    };
    const options = { store: { path }, tools: { leave }, model: oneToolCall("leave") };
    const troupe = await createTroupe(options);
    await (await troupe.session("left")).turn("Leave.");
    await (await troupe.session("s")).append({
      nodes: [{ kind: "message", message: { role: "user", text: "first" } }],
    });
    await troupe.close();

    const store = openLmdb(path);
    expect(Object.keys(store.head("left")?.components ?? {})).not.toContain("entering");
    expect(store.component(contentHash(bytes))).toBeDefined();
    // As a process leaves it that dies between the two writes.
    const head = store.head("s");
    if (head === undefined) throw new Error("The session is not stored.");
    const components = { ...head.components, entering: contentHash(bytes) };
    const commit = { ...head, revision: head.revision + 1, operation: "between", components };
    const epoch = store.claim("s", { owner: "a test", take: "always" });
    const [written] = store.write([
      { kind: "commit", commit: { head: commit, expectedRevision: head.revision, epoch, components: [] } },
    ]);
    expect(written?.ok).toBe(true);
    store.close();

    const again = await startTroupe({ ...options, tools: {} });
    const session = await again.session("s");
    await until("the task is done there", async () => (await session.info()).turns === 1);
    expect(await session.view()).toMatchObject({ frameId: "second", frames: [{ frameId: "main", reason: "switch" }] });
    expect((await session.messages())[0]?.parts).toEqual([{ type: "text", text: "Go on." }]);
    expect(await session.messages({ frameId: "main" })).toHaveLength(1);
  });
});
