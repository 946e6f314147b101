import type { TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { Elsewhere, journaled } from "../../support/elsewhere.js";
import { asking, closedUnder, stored } from "../../support/going-on.js";
import { gates } from "../../support/journaled.js";
import { fixture, refusalOf, startTroupe, until } from "../../support/runtime.js";

// A turn that is taken up goes on with what it was asked with.

const PREPARATION = ["transform", "beforeTurn", "catalog", "prompt"];

describe("a turn that the next process takes up", () => {
  test.each(["inline", "worker"] as const)(
    "asks its model with what it was asked with, and no hook of its preparation again (%s plugin)",
    async (tier) => {
      const { options, asked, hooks } = await asking(tier);
      const gate = gates();
      const tools = { wait: gate.tool("wait"), hidden: gate.quick("hidden") };
      const troupe = await startTroupe({ ...options, tools, instructions: "Be kind.", modelOptions: { seed: 1 } });
      const session = await troupe.session("s");
      await session.turn("first");
      const turn = session.turn(":wait answer");
      await until("the tool runs", () => gate.calls.length === 1);
      await closedUnder(troupe, turn);
      const prepared = hooks();
      expect(prepared.filter((hook) => hook === "beforeTurn")).toHaveLength(2);
      const [, before] = asked();
      const again = await startTroupe({
        ...options,
        tools: { ...tools, more: gate.quick("more") },
        instructions: "Be brief.",
        modelOptions: { temperature: 1 },
        window: { maxMessages: 4, keepMessages: 2 },
      });
      await until("the tool runs again", () => gate.calls.length === 2);
      gate.open("wait");
      const session2 = await stored(again, 2);
      const [, , after] = asked();
      expect(asked()).toHaveLength(3);
      expect(after).toMatchObject({ system: before?.system, tools: before?.tools, history: before?.history });
      expect(after?.turn.slice(0, 3)).toEqual(before?.turn);
      expect(before?.system).toContain("Be kind.");
      expect(before?.tools).toEqual(["wait: wait"]);
      expect([before?.options, after?.options]).toEqual([{ seed: 2 }, { seed: 1 }]);
      expect(hooks()).toEqual(prepared);
      // What the hooks changed counts once, and what they asked for is in the conversation once.
      expect(await session2.query("prepares.state")).toEqual({ begun: 2, tools: 1 });
      const texts = (await session2.messages({ from: -5 })).map(({ parts }) => parts[0]);
      expect(texts).toMatchObject([
        { text: ":wait answer" },
        { text: before?.turn[1] },
        { type: "tool_call" },
        { text: "through" },
        { text: "answer" },
      ]);
      // The next turn is another one: it is asked with what there is now.
      await session2.turn("next");
      expect(asked().at(-1)).toMatchObject({
        tools: ["more: more", "wait: wait"],
        options: { seed: 3, temperature: 1 },
      });
      expect(asked().at(-1)?.system).toContain("Be brief.");
      expect(hooks().slice(prepared.length)).toEqual(expect.arrayContaining(PREPARATION));
    },
  );
});

describe("a tool that is gone when a turn is taken up", () => {
  test("fails the call that asks for it, and the turn goes on", async () => {
    const { options, asked } = await asking();
    const gate = gates();
    const troupe = await startTroupe({ ...options, tools: { wait: gate.tool("wait"), old: gate.quick("old") } });
    const turn = (await troupe.session("s")).turn(":wait :old answer", { key: "k" });
    await until("the tool runs", () => gate.calls.length === 1);
    await closedUnder(troupe, turn);
    // Neither what was interrupted is there any more, nor what is asked for next.
    const again = await startTroupe({ ...options, tools: { other: gate.quick("other") } });
    const result = await (await again.session("s")).turn(":wait :old answer", { key: "k" });
    expect(result).toMatchObject({ outcome: { type: "finished", text: "answer" }, issues: [] });
    const gone = (name: string) => ({
      output: {
        status: "failure",
        failure: { code: "tool_unavailable", message: `The tool ${name} is not there any more.` },
      },
    });
    expect(result.toolCalls).toMatchObject([gone("wait"), gone("old")]);
    expect(gate.calls).toEqual(["wait"]);
    expect(asked().map(({ tools }) => tools)).toEqual(Array.from({ length: 3 }, () => ["old: old", "wait: wait"]));
  });

  test("keeps the outcome it had", async () => {
    const { options } = await asking();
    const gate = gates();
    const troupe = await startTroupe({ ...options, tools: { wait: gate.tool("wait"), old: gate.quick("old") } });
    const turn = (await troupe.session("s")).turn(":old :wait answer", { key: "k" });
    await until("the second tool runs", () => gate.calls.length === 2);
    await closedUnder(troupe, turn);
    const again = await startTroupe({ ...options, tools: { wait: gate.quick("wait") } });
    const { toolCalls } = await (await again.session("s")).turn(":old :wait answer", { key: "k" });
    expect(toolCalls).toMatchObject([
      { toolName: "old", output: { status: "success", value: "old" } },
      { toolName: "wait", output: { status: "success", value: "wait" } },
    ]);
  });
});

describe("a turn that waits for an approval when its process is killed", () => {
  const ask = { ask: { module: fixture("tools/waits.mjs") } };

  test("goes on under a release with another prompt, other tools and other text of its agent", async () => {
    const { options, asked, hooks } = await asking("worker");
    const agents = (instructions: string) => ({ "support@1": { instructions } });
    const first = new Elsewhere(
      { ...options, tools: ask, agents: agents("Be kind.") },
      { input: ":ask answer", agent: "support" },
    );
    const { key = "" } = await first.says("tool_call_pending");
    await first.kill();
    const prepared = hooks();
    const gate = gates();
    const tools = { ...ask, added: gate.quick("added") };
    const troupe = await startTroupe({ ...options, tools, agents: agents("Be brief."), instructions: "Another host." });
    const session = await troupe.session("s");
    expect(await session.view()).toMatchObject({
      running: {
        turnId: "t1",
        input: ":ask answer",
        step: 1,
        pending: [{ key, toolName: "ask", at: expect.any(Number) }],
      },
      // The input, what beforeTurn said, and the answer that asks for the tool.
      messageCount: 3,
      usage: { inputTokens: 10, outputTokens: 5 },
      ledger: [{ source: "turn", model: "asked", usage: { inputTokens: 10 } }],
    });
    await troupe.completeTool(key, { value: "yes" });
    await stored(troupe);
    const [before, after] = asked();
    expect(asked()).toHaveLength(2);
    expect(after).toMatchObject({ system: before?.system, tools: before?.tools, history: before?.history });
    expect(before?.system).toContain("Be kind.");
    expect(hooks()).toEqual(prepared);
    expect(await session.query("prepares.state")).toEqual({ begun: 1, tools: 1 });
    expect(await session.view()).toMatchObject({ running: null, messageCount: 5, usage: { inputTokens: 20 } });
  });

  test("goes on also when it is killed again in the process that took it up", async () => {
    const { options, asked, hooks, path } = await asking("worker");
    const elsewhere = (instructions: string) => ({ ...options, tools: ask, instructions });
    const first = new Elsewhere(elsewhere("One."), { input: ":ask :ask answer" });
    const { key = "" } = await first.says("tool_call_pending");
    await first.kill();
    const prepared = hooks();
    const second = new Elsewhere(elsewhere("Two."), { input: "behind it" });
    await journaled(path, "waits:0");
    await second.kill();
    const third = await startTroupe(elsewhere("Three."));
    await third.completeTool(key, { value: "yes" });
    await until("the second call waits", () => asked().length === 2);
    expect(asked().map(({ system }) => system.slice(0, 4))).toEqual(["One.", "One."]);
    expect(hooks()).toEqual(prepared);
  });
});

describe("what a completion for the prompt cost", () => {
  test("is in the ledger once, also when the turn is taken up", async () => {
    const { options, asked } = await asking("inline", { completes: true });
    const gate = gates();
    const tools = { wait: gate.tool("wait") };
    const troupe = await startTroupe({ ...options, tools });
    const turn = (await troupe.session("s")).turn(":wait answer");
    await until("the tool runs", () => gate.calls.length === 1);
    await closedUnder(troupe, turn);
    const again = await startTroupe({ ...options, tools });
    await until("the tool runs again", () => gate.calls.length === 2);
    gate.open("wait");
    const { ledger } = await (await stored(again)).view();
    expect(ledger.map(({ source, usage }) => [source, usage.inputTokens]).sort()).toEqual([
      ["title", 10],
      ["turn", 20],
    ]);
    expect(asked().filter(({ direct }) => direct !== undefined)).toHaveLength(1);
  });
});

describe("what the journal has of a turn's prompt and tools", () => {
  /** The rows of the n-th turn, which waits in a tool, by key. */
  async function rowsOf(
    options: TroupeOptions,
    journal: () => { key: string; bytes: number }[],
    before: string[] = [],
  ) {
    const gate = gates();
    const troupe = await startTroupe({ ...options, plugins: [], tools: { wait: gate.tool("wait") } });
    const session = await troupe.session("s");
    for (const input of before) await session.turn(input);
    const turn = session.turn(":wait done");
    await until("the tool runs", () => gate.calls.length === 1);
    await closedUnder(troupe, turn);
    const rows = journal();
    const again = await startTroupe({ ...options, plugins: [], tools: { wait: gate.quick("wait") } });
    await until("the turn is stored", async () => (await (await again.session("s")).view()).running === null);
    await again.close();
    return Object.fromEntries(rows.map(({ key, bytes }) => [key.replace(/:c\d+/, ""), bytes]));
  }

  test("is their bytes the first time, their hash as long as they stay the same, and goes with the commit", async () => {
    const { options, journal } = await asking();
    const large = "x".repeat(20_000);
    const first = await rowsOf({ ...options, instructions: large }, journal);
    expect(Object.keys(first)).toEqual(["start", "model:0"]);
    expect(first.start).toBeGreaterThan(20_000);
    expect(journal()).toEqual([]);
    const second = await rowsOf({ ...options, instructions: large }, journal, ["between"]);
    expect(second.start).toBeLessThan(800);
    const third = await rowsOf({ ...options, instructions: `${large}!` }, journal);
    expect(third.start).toBeGreaterThan(20_000);
  });

  test("is nothing for a host that has such turns stopped", async () => {
    const { options, journal } = await asking();
    const rows = await rowsOf({ ...options, journal: { onMismatch: "stop" } }, journal);
    expect(Object.keys(rows)).toEqual(["start", "model:0"]);
  });
});

test("an onMismatch that there is none of is refused, and what there is is named", async () => {
  const journal = { onMismatch: "ignore" } as never;
  expect(await refusalOf(startTroupe({ journal }))).toMatchObject({
    code: "invalid_options",
    message: expect.stringContaining('"use_recorded" or "stop", not ignore'),
  });
});
