import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TroupeOptions, TurnResult } from "troupe";
import { describe, expect, test } from "vitest";
import { Elsewhere } from "../../support/elsewhere.js";
import { counted } from "../../support/journaled.js";
import { fixture, startTroupe, tempFolder, until } from "../../support/runtime.js";

// A process is killed in the middle of a turn; another one opens its store.

const TOOLS = { ask: { module: fixture("tools/waits.mjs") } };

async function killed(input = "ask answer") {
  const { options, lines } = await counted({
    tools: TOOLS,
    agents: { "support@3": { instructions: "Three.", tools: ["ask"] } },
  });
  const first = new Elsewhere(options, { input, agent: "support", tenant: "acme", extras: { key: "k" } });
  const { key = "" } = await first.says("tool_call_pending");
  await first.kill();
  return { options, key, lines };
}

test("a turn that a killed process left goes on with the agent version it was asked with, although a newer one is there", async () => {
  const { options, key, lines } = await killed();
  const troupe = await startTroupe({
    ...options,
    agents: { ...options.agents, "support@4": { instructions: "Four.", tools: [] } },
  });
  await troupe.completeTool(key, { value: "yes" });
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === 1);
  // It was the session's first turn: what the session was made with is stored with it.
  expect(await session.info()).toMatchObject({ agent: "support@3", tenant: "acme" });
  expect((await session.messages()).at(-1)?.parts).toMatchObject([{ type: "text", text: "answer" }]);
  expect(await lines()).toEqual(["model t1 0", "model t1 1"]);
});

test("a turn that a killed process left, and whose agent is gone, is stored as stopped with agent_unknown", async () => {
  const { options, lines } = await killed();
  const troupe = await startTroupe({ ...options, agents: { "support@4": { tools: ["ask"] } } });
  const session = await troupe.session("s");
  await until("the turn is stored", async () => (await session.info()).turns === 1);
  expect((await session.info()).agent).toBe("support@3");
  expect(await lines()).toEqual(["model t1 0"]);
  await session.setAgent("support");
  expect((await session.turn("answer")).text).toBe("answer");
  const left = await session.turn("ask answer", { key: "k" });
  expect(left.outcome).toMatchObject({ type: "stopped", reason: "runtime_error" });
  expect(left.issues.map(({ code }) => code)).toEqual(["agent_unknown"]);
  expect((await session.info()).agent).toBe("support@4");
});

describe("a turn that a killed process left, and whose agent is gone where the host wants the newest,", () => {
  /** A model that writes down what it is asked with, and a process that was killed while the session's n-th turn waited. */
  async function killedIn(nth: 1 | 2, input = ":ask answer") {
    const folder = await tempFolder();
    const file = join(folder, "asked");
    const agents: NonNullable<TroupeOptions["agents"]> = { "support@3": { instructions: "Three.", tools: ["ask"] } };
    const options: TroupeOptions = {
      sessionWorkers: 1,
      store: { path: join(folder, "store") },
      model: new URL(`${fixture("models/asked.mjs")}?file=${encodeURIComponent(file)}`),
      tools: TOOLS,
      onMissingAgent: "newest",
    };
    if (nth === 2) {
      const troupe = await startTroupe({ ...options, agents });
      await (await troupe.session("s", { agent: "support" })).turn("before");
      await troupe.close();
    }
    const first = new Elsewhere({ ...options, agents }, { input, agent: "support", extras: { key: "k" } });
    const { key = "" } = await first.says("tool_call_pending");
    await first.kill();
    const asked = () =>
      readFileSync(file, "utf8")
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line) as { readonly system: string; readonly tools: readonly string[] });
    return { options, key, asked };
  }

  test.each([1, 2] as const)(
    "goes on with what it was asked with, and the session is the newest version's (turn %s of its session)",
    async (nth) => {
      const { options, key, asked } = await killedIn(nth);
      const before = asked().at(-1);
      const newest = { instructions: "Five.", tools: ["ask"] };
      const troupe = await startTroupe({ ...options, agents: { "support@4": {}, "support@5": newest } });
      expect((await troupe.pending()).calls).toMatchObject([{ key, toolName: "ask" }]);
      await troupe.completeTool(key, { value: "yes" });
      const session = await troupe.session("s");
      const { outcome, issues } = await session.turn(":ask answer", { key: "k" });
      expect({ outcome, issues }).toMatchObject({ outcome: { type: "finished", text: "answer" }, issues: [] });
      const after = asked().at(-1);
      expect(asked()).toHaveLength(nth + 1);
      expect(before?.system).toContain("Three.");
      expect(after).toMatchObject({ system: before?.system, tools: before?.tools });
      expect((await session.info()).agent).toBe("support@5");
      await session.turn("next");
      expect(asked().at(-1)?.system).toContain("Five.");
    },
  );

  test("is given the answer it waits for although the tool went with the version, and fails the next call of that", async () => {
    const { options, key } = await killedIn(1, ":ask :ask answer");
    const troupe = await startTroupe({ ...options, tools: {}, agents: { "support@4": {} } });
    await troupe.completeTool(key, { value: "yes" });
    const { outcome, toolCalls } = await (await troupe.session("s")).turn(":ask :ask answer", { key: "k" });
    expect(outcome).toMatchObject({ type: "finished", text: "answer" });
    expect(toolCalls).toMatchObject([
      { output: { status: "success", value: "yes" } },
      { output: { status: "failure", failure: { code: "tool_unavailable" } } },
    ]);
    expect((await troupe.pending()).calls).toEqual([]);
  });

  test("is stopped with agent_unknown when no version of its agent is left", async () => {
    const { options } = await killedIn(2);
    const troupe = await startTroupe({ ...options, agents: { "sales@1": {} } });
    const session = await troupe.session("s");
    await until("the turn is stored", async () => (await session.info()).turns === 2);
    const { issues } = (await session.turnResult("t2")) as TurnResult;
    expect(issues.map(({ code }) => code)).toEqual(["agent_unknown"]);
  });
});
