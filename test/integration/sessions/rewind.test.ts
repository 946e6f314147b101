import { cpSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createTroupe, pendingTool, type Session, scriptedModel } from "troupe";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  EMPTY_OBJECT,
  oneToolCall,
  PATIENT,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

const ECHO = scriptedModel({ turns: [[{ text: "{input}" }]] });
const said = async (session: Session) =>
  (await session.messages()).flatMap(({ parts }) => parts.map((part) => (part.type === "text" ? part.text : "")));
const COUNTER = { module: plugin("counter"), ...PATIENT };

describe("session.rewind", () => {
  test("goes back to a node, and the next turn goes on from there", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    for (const input of ["one", "two", "three"]) await session.turn(input);
    const rewound = await session.rewind("s@1.1");
    expect(rewound).toEqual({ node: "s@1.1", messageCount: 2, frameId: "frame-4", left: "s@3.1" });
    expect(await said(session)).toEqual(["one", "one"]);
    expect(await session.view()).toMatchObject({
      messageCount: 2,
      leafNodeId: "s@1.1",
      frameId: "frame-4",
      turnIndex: 3,
    });
    expect(await session.turn("else")).toMatchObject({ turnIndex: 4, turnId: "t4" });
    expect(await said(session)).toEqual(["one", "one", "else", "else"]);
    const ids = (await session.messages()).map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("leaves the branch in the tree and as a frame, which can be gone back to", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    for (const input of ["one", "two"]) await session.turn(input);
    await session.rewind("s@1.1");
    await session.turn("else");
    const tree = await session.tree();
    expect(tree.map(({ node, active }) => [node, active])).toEqual([
      ["s@1.0", true],
      ["s@1.1", true],
      ["s@4.0", true],
      ["s@4.1", true],
      ["s@2.0", false],
      ["s@2.1", false],
    ]);
    expect((await session.view()).frames).toEqual([{ frameId: "main", reason: "rewind", leaf: "s@2.1" }]);
    expect((await session.messages({ frameId: "main" })).at(-1)?.id).toBe("t2.1");
    expect(await session.rewind("s@2.1")).toMatchObject({ messageCount: 4, left: "s@4.1" });
    expect(await said(session)).toEqual(["one", "one", "two", "two"]);
  });

  test("to and fro between two branches lists each of them once, however often", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    for (const input of ["one", "two"]) await session.turn(input);
    await session.rewind("s@1.1");
    await session.turn("else");
    for (let n = 0; n < 5; n++) {
      await session.rewind("s@2.1");
      await session.rewind("s@4.1");
    }
    const leaves = (await session.view()).frames.map(({ leaf }) => leaf);
    expect(leaves.sort()).toEqual(["s@2.1", "s@4.1"]);
  });

  test("with null begins before the first message", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    await session.turn("one");
    expect(await session.rewind(null)).toMatchObject({ node: null, messageCount: 0, left: "s@1.1" });
    expect(await said(session)).toEqual([]);
    await session.turn("else");
    expect(await said(session)).toEqual(["else", "else"]);
    expect((await session.tree()).map(({ parent }) => parent)).toEqual([null, "s@3.0", null, "s@1.0"]);
  });

  test("to where the conversation ends already writes nothing", async () => {
    const troupe = await startTroupe({ model: ECHO });
    const session = await troupe.session("s");
    expect(await session.rewind(null)).toEqual({ node: null, messageCount: 0, frameId: "main", left: null });
    await session.turn("one");
    const { revision } = await session.view();
    expect(await session.rewind("s@1.1")).toEqual({ node: "s@1.1", messageCount: 2, frameId: "main", left: null });
    expect((await session.view()).revision).toBe(revision);
  });

  test("leaves plugin state, and what was spent, as they are now", async () => {
    const troupe = await startTroupe({ plugins: [COUNTER], model: oneToolCall("count") });
    const session = await troupe.session("s");
    for (const input of ["one", "two"]) await session.turn(input);
    const { ledger } = await session.view();
    await session.rewind(null);
    expect((await session.view()).ledger).toEqual(ledger);
    const { text } = await session.turn("three");
    expect(text).toBe("Result: 3");
  });

  test("is stored: parked, after a restart and in a fork it is where it was", async () => {
    const path = await tempFolder();
    const first = await createTroupe({ model: ECHO, store: { path } });
    onTestFinished(() => first.close());
    const before = await first.session("s");
    for (const input of ["one", "two"]) await before.turn(input);
    await before.park();
    await before.rewind("s@1.1");
    await before.park();
    expect(await said(before)).toEqual(["one", "one"]);
    await first.close();
    const troupe = await startTroupe({ model: ECHO, store: { path } });
    const session = await troupe.session("s");
    expect(await said(session)).toEqual(["one", "one"]);
    expect(await session.view()).toMatchObject({ messageCount: 2, leafNodeId: "s@1.1" });
    const fork = await session.fork({ id: "f" });
    expect(await said(fork)).toEqual(["one", "one"]);
    // What the fork has of its parent is its own conversation too.
    await fork.turn("of the fork");
    expect(await fork.rewind("s@1.0")).toMatchObject({ messageCount: 1 });
    expect(await said(fork)).toEqual(["one"]);
    expect(await said(session)).toEqual(["one", "one"]);
  });

  test("keeps the branch that was left when the store is pruned and the session exported", async () => {
    const path = await tempFolder();
    const troupe = await startTroupe({ model: ECHO, store: { path } });
    const session = await troupe.session("s");
    for (const input of ["one", "two"]) await session.turn(input);
    await session.rewind(null);
    await troupe.prune();
    expect((await session.messages({ frameId: "main" })).map(({ id }) => id)).toEqual(["t1.0", "t1.1", "t2.0", "t2.1"]);
    await session.rewind("s@2.0");
    expect(await said(session)).toEqual(["one", "one", "two"]);
  });

  test("gives the model the end of the branch that its window has, and breaks no cache by it", async () => {
    const troupe = await startTroupe({ model: ECHO, development: true });
    const session = await troupe.session("s");
    await session.configure({ window: { maxMessages: 4, keepMessages: 2 } });
    for (let n = 1; n <= 6; n++) await session.turn(`${n} ${"x".repeat(9_000)}`);
    await session.rewind("s@4.1");
    const result = await session.turn("else");
    expect(result.issues).toEqual([]);
    expect((await session.view()).messageCount).toBe((await session.messages()).length);
  });

  test("is refused while a turn runs or waits, and done when it has ended", async () => {
    const troupe = await startTroupe({
      model: oneToolCall("ask"),
      tools: { ask: { description: "Asks.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() } },
    });
    const session = await troupe.session("s");
    const turn = session.turn("one");
    const rewind = refusalOf(session.rewind(null));
    expect(await rewind).toMatchObject({ code: "turn_running", retryable: true });
    for await (const activity of turn)
      if (activity.type === "tool_call_pending") {
        expect((await refusalOf(session.rewind(null))).code).toBe("turn_running");
        await troupe.completeTool(activity.key, { value: "yes" });
      }
    expect(await session.rewind(null)).toMatchObject({ messageCount: 0 });
  });

  test("is refused at a node nobody knows, of a fork or a stranger, and between a tool call and its result", async () => {
    const troupe = await startTroupe({ plugins: [COUNTER], model: oneToolCall("count") });
    const [session, stranger] = [await troupe.session("s"), await troupe.session("stranger")];
    await session.turn("one");
    await stranger.turn("one");
    const fork = await session.fork({ id: "f" });
    await fork.turn("two");
    expect((await session.tree()).some(({ node }) => node === "f@2.0")).toBe(true);
    for (const node of ["s@1.99", "s@7.0", "", "s@1.01", "stranger@1.0", "f@2.0", "x".repeat(9_999)]) {
      const refused = await refusalOf(session.rewind(node));
      expect([node, refused.code]).toEqual([node, "node_unknown"]);
      expect(refused.message.length).toBeLessThan(500);
    }
    expect((await refusalOf(session.rewind("s@1.1"))).code).toBe("node_unanswered");
    for (const nothing of [undefined, 7, {}])
      expect((await refusalOf(session.rewind(nothing as never))).message).toMatch(
        /rewound to a node of its tree, or to null/,
      );
    expect(await said(session)).toHaveLength(4);
  });

  test("goes behind a turn that a crash left behind: it is refused until that has ended", async () => {
    const path = await tempFolder();
    const options = {
      model: oneToolCall("ask"),
      store: { path },
      sessionWorkers: 1,
      drainMs: 50,
      tools: { ask: { description: "Asks.", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() } },
    };
    const first = await createTroupe(options);
    const running = (await first.session("s")).turn("one");
    let key = "";
    for await (const activity of running)
      if (activity.type === "tool_call_pending") {
        key = activity.key;
        void first.close();
        break;
      }
    await refusalOf(running);
    await first.close();
    const troupe = await startTroupe(options);
    const session = await troupe.session("s");
    expect((await refusalOf(session.rewind(null))).code).toBe("turn_running");
    await troupe.completeTool(key, { value: "yes" });
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    expect(await session.rewind(null)).toMatchObject({ messageCount: 0 });
  });

  test.each([2, 3])("takes a session of a store of layout %i back to any of its turns", async (layout) => {
    const folder = await tempFolder();
    const golden = new URL(`../../store/fixtures/golden-v${layout}-turns`, import.meta.url);
    cpSync(fileURLToPath(golden), join(folder, "store"), { recursive: true });
    const troupe = await startTroupe({
      model: ECHO,
      store: { path: join(folder, "store") },
      plugins: ["counter", "notes"].map((name) => ({ module: plugin(name) })),
    });
    const session = await troupe.session("plain");
    const before = (await session.view()).messageCount;
    const [, second] = (await session.tree()).filter(({ active, role }) => active && role === "user");
    const { messageCount } = await session.rewind(second?.parent ?? null);
    expect(messageCount).toBeLessThan(before);
    await session.turn("else");
    expect((await said(session)).slice(-2)).toEqual(["else", "else"]);
    expect(await session.view()).toMatchObject({ messageCount: messageCount + 2 });
    expect(await session.messages({ frameId: "main" })).toHaveLength(before);
  });
});
