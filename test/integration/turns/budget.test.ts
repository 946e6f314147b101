import { type Activity, type SessionBudget, scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { EMPTY_OBJECT, fixture, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const USAGE = { inputTokens: 60, outputTokens: 40 };
const noop = { description: "Does nothing", inputSchema: EMPTY_OBJECT, execute: () => "ok" };
const call = { toolCalls: [{ tool: "noop", args: {} }], usage: USAGE };
/** A turn of three model calls, 100 tokens each. */
const model = scriptedModel({ turns: [[call, call, { text: "done", usage: USAGE }]] });
const start = (budget: SessionBudget | undefined, options: TroupeOptions = {}) =>
  startTroupe({ sessionWorkers: 1, model, tools: { noop }, ...(budget && { budget }), ...options });

describe("a session's budget", () => {
  test("stops a turn before the call that it cannot pay, and every later one", async () => {
    const session = await (await start({ maxTokens: 200 })).session("s");
    const result = await session.turn("go");
    expect(result).toMatchObject({
      modelCalls: 2,
      outcome: { type: "stopped", reason: "budget", code: "budget_spent" },
      issues: [{ kind: "runtime", message: "The session has spent 200 of its 200 tokens." }],
    });
    // What was done is kept: every call has its result.
    expect((await session.messages()).map(({ role }) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
      "tool",
    ]);
    expect(await session.turn("again")).toMatchObject({ modelCalls: 0, outcome: { reason: "budget" } });
    expect(await session.spending()).toMatchObject({ tokens: 200, budget: { maxTokens: 200 } });
  });

  test("counts an answer whose provider did not say its usage by its length, and marks it as estimated", async () => {
    const troupe = await start({ maxTokens: 150 }, { model: fixture("models/unsaid-usage.mjs"), tools: {} });
    const session = await troupe.session("s");
    const { usage, modelCallRecords } = await session.turn("y".repeat(200));
    expect(usage.outputTokens).toBe(100);
    expect(usage.inputTokens).toBeGreaterThanOrEqual(50);
    expect(modelCallRecords[0]?.attempts).toMatchObject([{ outcome: "completed", usage, usageEstimated: true }]);
    expect(await session.turn("again")).toMatchObject({ modelCalls: 0, outcome: { reason: "budget" } });
  });

  test("is a session's own: another one has all of it", async () => {
    const troupe = await start({ maxTokens: 300 });
    for (const id of ["a", "b"]) {
      const result = await (await troupe.session(id)).turn("go");
      expect(result.outcome).toMatchObject({ type: "finished", text: "done" });
    }
  });

  test("in money counts what each model costs", async () => {
    const prices = { scripted: { input: 10_000, output: 20_000 } };
    const session = await (await start({ maxCost: 2 }, { prices })).session("s");
    // Each call costs 60 × 0.01 + 40 × 0.02 = 1.4.
    expect(await session.turn("go")).toMatchObject({ modelCalls: 2, outcome: { reason: "budget" } });
    const { cost, unpriced } = await session.spending();
    expect(cost).toBeCloseTo(2.8, 9);
    expect(unpriced).toEqual([]);
  });

  test("may pause a turn until it is raised", async () => {
    const session = await (await start({ maxTokens: 100, whenSpent: "pause" })).session("s");
    const turn = session.turn("go");
    const seen: Activity[] = [];
    const reading = (async () => {
      for await (const activity of turn) seen.push(activity);
    })();
    const paused = () => seen.filter(({ type }) => type === "turn_paused").length;
    await until("it is paused", () => paused() === 1);
    // Not enough: it goes on waiting, and is not told to have gone on.
    await session.setBudget({ maxTokens: 50, whenSpent: "pause" });
    expect(await session.setBudget({ maxTokens: 200, whenSpent: "pause" })).toMatchObject({ tokens: 100 });
    await until("it is paused again", () => paused() === 2);
    await session.setBudget(null);
    await reading;
    expect((await turn).outcome).toMatchObject({ type: "finished", text: "done" });
    expect(seen.flatMap(({ type }) => (type.startsWith("turn_") ? [type] : []))).toEqual([
      "turn_started",
      "turn_paused",
      "turn_resumed",
      "turn_paused",
      "turn_resumed",
      "turn_finished",
    ]);
  });

  test("that pauses a turn does not keep it from being cancelled", async () => {
    const session = await (await start({ maxTokens: 0, whenSpent: "pause" })).session("s");
    const turn = session.turn("go");
    for await (const { type } of turn) if (type === "turn_paused") turn.cancel("Enough.");
    expect((await turn).outcome).toMatchObject({ type: "stopped", reason: "cancelled", message: "Enough." });
  });

  test("is kept with the session, and outlives the process", async () => {
    const store = { path: await tempFolder() };
    const troupe = await start(undefined, { store });
    const session = await troupe.session("s");
    await session.turn("go");
    await session.setBudget({ maxTokens: 300 });
    await troupe.close();
    const again = await (await start({ maxTokens: 10_000 }, { store })).session("s");
    expect(await again.spending()).toMatchObject({ tokens: 300, budget: { maxTokens: 300 } });
    expect((await again.turn("go")).outcome).toMatchObject({ reason: "budget" });
    await again.setBudget(null);
    expect((await again.turn("go")).outcome).toMatchObject({ type: "finished" });
  });

  test("that is none is refused", async () => {
    const session = await (await start(undefined)).session("s");
    expect(await refusalOf(session.setBudget({} as never))).toMatchObject({ code: "invalid_budget" });
    expect(await refusalOf(start({ maxTokens: -1 }))).toMatchObject({ code: "invalid_budget" });
    expect(await refusalOf(start(undefined, { prices: { small: {} } as never }))).toMatchObject({
      code: "invalid_budget",
    });
  });
});
