import { createTroupe } from "troupe";
import { describe, expect, test } from "vitest";
import {
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  oneToolCall,
  plugin,
  refusalOf,
  startTroupe,
  tempFolder,
} from "../../support/runtime.js";

describe.each(["worker", "inline"] as const)("a fork with a plugin in the tier %s", (tier) => {
  // §15.55
  test("takes the plugin's state along, lives on another thread, and the two diverge", async () => {
    const troupe = await startTroupe({ plugins: [{ module: plugin("counter"), tier }], model: oneToolCall("count") });
    const parent = await troupe.session("parent");
    await parent.turn("one");
    await parent.turn("two");
    const child = await parent.fork({ id: "child" });
    const [parentInfo, childInfo] = [await parent.info(), await child.info()];
    expect(childInfo.threadId).not.toBe(parentInfo.threadId);
    expect(childInfo).toMatchObject({ id: "child", parent: "parent", turns: 2, revision: 1 });
    expect(firstToolValue(await child.turn("three"))).toBe(3);
    expect(firstToolValue(await child.turn("four"))).toBe(4);
    expect(firstToolValue(await parent.turn("three again"))).toBe(3);
    expect((await parent.info()).turns).toBe(3);
  });
});

describe("a fork", () => {
  test("shares the history so far and writes none of it", async () => {
    const troupe = await startTroupe({ model: fixture("models/show-prompt.mjs") });
    const parent = await troupe.session("parent");
    await parent.turn("before");
    const written = (await troupe.stats()).store.records;
    const child = await parent.fork({ id: "child" });
    // The child's head, and nothing else.
    expect((await troupe.stats()).store.records - written).toBe(1);
    await parent.turn("only in the parent");
    const inputs = JSON.parse((await child.turn("only in the child")).text).conversation.filter(
      ([role]: [string]) => role === "user",
    );
    expect(inputs).toEqual([
      ["user", "before"],
      ["user", "only in the child"],
    ]);
  });

  test("can be taken of a session that never had a turn, and of a fork", async () => {
    const troupe = await startTroupe({ plugins: [{ module: plugin("counter") }], model: oneToolCall("count") });
    const parent = await troupe.session("parent");
    const child = await parent.fork({ id: "child" });
    expect(firstToolValue(await child.turn("one"))).toBe(1);
    const grandchild = await child.fork({ id: "grandchild" });
    expect(firstToolValue(await grandchild.turn("two"))).toBe(2);
    expect((await grandchild.info()).parent).toBe("child");
  });

  test("taken while a turn runs starts at the last stored turn, and the parent goes on at once", async () => {
    let release = () => {};
    const gate = new Promise<string>((resolve) => {
      release = () => resolve("released");
    });
    const troupe = await startTroupe({
      plugins: [{ module: plugin("counter") }],
      model: oneToolCall("wait"),
      tools: { wait: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => gate } },
    });
    const parent = await troupe.session("parent");
    const turn = parent.turn("one");
    for await (const activity of turn) {
      if (activity.type !== "tool_call_started") continue;
      const child = await parent.fork({ id: "child" });
      expect((await child.info()).turns).toBe(0);
      release();
    }
    expect((await turn).outcome.type).toBe("finished");
  });

  test("survives a restart with its parent, state and hidden tools", async () => {
    const path = await tempFolder();
    const options = { store: { path }, plugins: [{ module: plugin("counter") }], model: oneToolCall("count") };
    const first = await createTroupe(options);
    const parent = await first.session("parent");
    await parent.turn("one");
    await parent.fork({ id: "child" });
    await parent.fork({ id: "narrow", authority: { hiddenTools: ["count"] } });
    await first.close();
    const second = await startTroupe(options);
    const child = await second.session("child");
    expect(firstToolValue(await child.turn("two"))).toBe(2);
    expect((await child.info()).parent).toBe("parent");
    expect(firstToolValue(await (await second.session("narrow")).turn("two"))).toBe("tool_unavailable");
  });

  // §15.37
  test("cannot call what its authority hides, and neither can its own forks", async () => {
    const troupe = await startTroupe({
      model: oneToolCall("shell"),
      tools: { shell: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "ran" } },
    });
    const parent = await troupe.session("parent");
    const child = await parent.fork({ id: "child", authority: { hiddenTools: ["shell"] } });
    const grandchild = await child.fork({ id: "grandchild" });
    expect((await parent.turn("hi")).toolCalls[0]?.output).toEqual({ status: "success", value: "ran" });
    expect((await child.turn("hi")).toolCalls[0]?.output).toMatchObject({ failure: { code: "tool_unavailable" } });
    expect((await grandchild.turn("hi")).toolCalls[0]?.output).toMatchObject({ failure: { code: "tool_unavailable" } });
  });

  test("that a plugin refuses leaves nothing behind: the same id can be forked to again", async () => {
    const troupe = await startTroupe({ plugins: [{ module: plugin("misbehaves") }] });
    const parent = await troupe.session("parent");
    await parent.turn("hi");
    const fork = () => parent.fork({ id: "sessionRestored:throws" });
    const before = (await troupe.stats()).store.records;
    expect((await refusalOf(fork())).code).toBe("session_restore_failed");
    expect((await troupe.stats()).store.records).toBe(before);
    expect((await (await fork()).turn("on its own")).outcome.type).toBe("finished");
  });

  // §15.12
  test("is refused for an id that exists, for bad options, and leaves nothing behind", async () => {
    const troupe = await startTroupe();
    const parent = await troupe.session("parent");
    await parent.turn("hi");
    expect((await refusalOf(parent.fork({ id: "parent" }))).code).toBe("session_exists");
    await (await troupe.session("other")).turn("hi");
    await (await troupe.session("other")).close();
    expect((await refusalOf(parent.fork({ id: "other" }))).code).toBe("session_exists");
    expect((await refusalOf(parent.fork({ id: "" }))).code).toBe("invalid_session_id");
    expect((await refusalOf(parent.fork({ at: "root" }))).code).toBe("node_unknown");
    expect((await refusalOf(parent.fork({ at: 3 as never }))).code).toBe("invalid_fork");
    expect((await refusalOf(parent.fork({ authority: { hiddenTools: "shell" as never } }))).code).toBe("invalid_fork");
    expect((await (await troupe.session("other")).turn("still there")).turnIndex).toBe(2);
    expect((await troupe.stats()).forks).toBe(0);
  });
});
