import { type Activity, scriptedModel, type TenantBudgets, type Troupe, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { ask, asking, valueIn } from "../../support/asking.js";
import { counted, gates } from "../../support/journaled.js";
import { listening } from "../../support/listening.js";
import { EMPTY_OBJECT, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const USAGE = { inputTokens: 60, outputTokens: 40 };
const noop = { description: "Does nothing", inputSchema: EMPTY_OBJECT, execute: () => "ok" };
const call = { toolCalls: [{ tool: "noop", args: {} }], usage: USAGE };
/** A turn of three model calls, 100 tokens each. */
const model = scriptedModel({ turns: [[call, call, { text: "done", usage: USAGE }]] });
const start = (tenantBudgets: TenantBudgets | undefined, options: TroupeOptions = {}) =>
  startTroupe({ sessionWorkers: 2, model, tools: { noop }, ...(tenantBudgets && { tenantBudgets }), ...options });
const acme = (maxTokens: number, whenSpent: "stop" | "pause" = "stop"): TenantBudgets => ({
  tenants: { acme: { maxTokens, period: "month", whenSpent } },
});
const open = (troupe: Troupe, id: string, tenant = "acme") => troupe.session(id, { tenant });

describe("a tenant's budget", () => {
  test("is what all its sessions may spend together, and no other tenant's", async () => {
    const troupe = await start(acme(400));
    expect((await (await open(troupe, "a")).turn("go")).outcome).toMatchObject({ type: "finished" });
    const second = await (await open(troupe, "b")).turn("go");
    expect(second).toMatchObject({
      modelCalls: 1,
      outcome: { type: "stopped", reason: "budget", code: "budget_spent" },
    });
    expect(second.issues[0]?.message).toContain("Tenant acme has spent 400 of its 400 tokens");
    expect(await troupe.tenantSpending("acme")).toMatchObject({ tokens: 400, budget: { maxTokens: 400 } });
    expect((await (await open(troupe, "c", "else")).turn("go")).outcome).toMatchObject({ type: "finished" });
    expect(await troupe.tenantSpending("else")).toEqual({
      tenant: "else",
      tokens: 0,
      cost: 0,
      budget: null,
      period: null,
    });
  });

  test("is exactly what was stored after a restart, whatever sessions were deleted", async () => {
    const store = { path: await tempFolder() };
    const first = await start(acme(1_000), { store });
    for (const id of ["a", "b"]) await (await open(first, id)).turn("go");
    await first.deleteSession("a");
    await first.close();
    const troupe = await start(acme(1_000), { store });
    expect(await troupe.tenantSpending("acme")).toMatchObject({ tokens: 600 });
    await (await troupe.session("b")).turn("go");
    expect(await (await open(troupe, "d")).turn("go")).toMatchObject({ modelCalls: 1, outcome: { reason: "budget" } });
    expect(await troupe.tenantSpending("acme")).toMatchObject({ tokens: 1_000 });
  });

  test("counts a turn once that a crash interrupted", async () => {
    const gate = gates();
    const { start } = await counted({
      tools: { wait: gate.tool("wait") },
      tenantBudgets: { default: { maxTokens: 1_000, period: "day" } },
    });
    const troupe = await start();
    const turn = (await open(troupe, "s")).turn("wait answer");
    await until("the tool runs", () => gate.calls.length === 1);
    const { tokens } = await troupe.tenantSpending("acme");
    expect(tokens).toBeGreaterThan(0);
    await troupe.kill({ sessionWorker: 0 });
    await until("the tool runs again", () => gate.calls.length === 2);
    expect(await troupe.tenantSpending("acme")).toMatchObject({ tokens });
    gate.open("wait");
    const { usage } = await turn;
    const all = usage.inputTokens + usage.outputTokens;
    expect(await troupe.tenantSpending("acme")).toMatchObject({ tokens: all });
    await troupe.close();
    expect(await (await start()).tenantSpending("acme")).toMatchObject({ tokens: all });
  });

  test("may pause turns until it is raised, which is kept over a restart", async () => {
    const store = { path: await tempFolder() };
    const troupe = await start(acme(100, "pause"), { store });
    const turn = (await open(troupe, "s")).turn("go");
    const seen: Activity["type"][] = [];
    const reading = (async () => {
      for await (const { type } of turn) seen.push(type);
    })();
    await until("it is paused", () => seen.includes("turn_paused"));
    await troupe.setTenantBudget("acme", { maxTokens: 5_000, period: "month" });
    await reading;
    expect((await turn).outcome).toMatchObject({ type: "finished", text: "done" });
    expect(seen.filter((type) => type.startsWith("turn_"))).toEqual([
      "turn_started",
      "turn_paused",
      "turn_resumed",
      "turn_finished",
    ]);
    await troupe.close();
    const again = await start(acme(100), { store });
    expect(await again.tenantSpending("acme")).toMatchObject({ tokens: 300, budget: { maxTokens: 5_000 } });
    await again.setTenantBudget("acme", undefined);
    expect(await again.tenantSpending("acme")).toMatchObject({ budget: { maxTokens: 100 } });
    await again.setTenantBudget("acme", null);
    expect((await (await open(again, "t")).turn("go")).outcome).toMatchObject({ type: "finished" });
  });

  test("that pauses a turn does not keep it from being cancelled", async () => {
    const troupe = await start(acme(0, "pause"));
    const turn = (await open(troupe, "s")).turn("go");
    for await (const { type } of turn) if (type === "turn_paused") turn.cancel("Enough.");
    expect((await turn).outcome).toMatchObject({ type: "stopped", reason: "cancelled", message: "Enough." });
  });

  test("caps children, and completions beside the turn", async () => {
    // Every model call costs 15 tokens, a completion 5.
    const budget = { tenants: { acme: { maxTokens: 40, period: "day" as const } } };
    const troupe = await startTroupe(asking("worker", { tenantBudgets: budget }));
    const parent = await open(troupe, "p");
    const made = await ask(parent, ...Array.from({ length: 6 }, () => ["createSession", {}] as const));
    const children = made.map((answer) => valueIn<{ sessionId: string }>(answer).sessionId);
    await ask(parent, ["directCompletion", { messages: [{ role: "user", text: "?" }] }, "title"]);
    expect(await troupe.tenantSpending("acme")).toMatchObject({ tokens: 5 });
    await ask(parent, ...children.map((id) => ["startTurn", id, "hello"] as const));
    const { tokens } = await troupe.tenantSpending("acme");
    expect(tokens).toBe(50);
    const [refused] = await ask(parent, ["directCompletion", { messages: [{ role: "user", text: "?" }] }, "title"]);
    expect(refused).toEqual({ error: "budget_spent" });
  });

  test("is not overrun by many sessions at once once it is known what a call costs", async () => {
    const one = scriptedModel({ turns: [[{ text: "done", usage: USAGE }]] });
    const troupe = await start(acme(1_000), { model: one });
    await (await open(troupe, "first")).turn("go");
    const sessions = await Promise.all(Array.from({ length: 40 }, (_, n) => open(troupe, `s${n}`)));
    const results = await Promise.all(sessions.map((session) => session.turn("go")));
    expect(results.filter(({ outcome }) => outcome.type === "finished")).toHaveLength(9);
    expect(await troupe.tenantSpending("acme")).toMatchObject({ tokens: 1_000 });
  });

  test("begins anew with each period: a paused turn goes on, whatever it spent before", async () => {
    const troupe = await start(() => ({ maxTokens: 100, period: { ms: 1_000 }, whenSpent: "pause" }));
    expect((await (await open(troupe, "s")).turn("go")).outcome).toMatchObject({ type: "finished", text: "done" });
  });

  test("in money counts what each model costs, and is told once when it is spent", async () => {
    const { onEvent, of, first } = listening();
    const budgets: TenantBudgets = { default: { maxCost: 2, period: "day" } };
    const troupe = await start(budgets, { onEvent, prices: { scripted: { input: 10_000, output: 20_000 } } });
    for (const id of ["a", "b"]) await (await open(troupe, id)).turn("go");
    expect((await troupe.tenantSpending("acme")).cost).toBeCloseTo(2.8, 9);
    expect(await first("tenant_budget_spent")).toMatchObject({ tenant: "acme", tokens: 200, whenSpent: "stop" });
    await troupe.close();
    expect(of("tenant_budget_spent")).toHaveLength(1);
  });

  test("that is none is refused", async () => {
    for (const bad of [
      { maxTokens: 1 },
      { period: "day" },
      { maxTokens: 1, period: "week" },
      { maxTokens: 1, period: { ms: 5 } },
      { maxTokens: 1, period: "day", perSession: true },
    ])
      expect((await refusalOf(start({ default: bad as never }))).code).toBe("invalid_budget");
    expect((await refusalOf(start({ tenant: {} } as never))).code).toBe("invalid_options");
    const troupe = await start({});
    expect((await refusalOf(troupe.setTenantBudget("acme", {} as never))).code).toBe("invalid_budget");
    expect((await refusalOf(troupe.tenantSpending(""))).code).toBe("invalid_options");
    const without = await start(undefined);
    expect((await refusalOf(without.setTenantBudget("acme", null))).message).toContain("tenantBudgets: {}");
  });
});

test("a tenant without a budget costs no row, and the host is asked for it once", async () => {
  const one = { model: scriptedModel({ turns: [[{ text: "done", usage: USAGE }]] }), sessionWorkers: 1 };
  const asked: string[] = [];
  const records = async (budgets: TenantBudgets | undefined, tenant: string) => {
    const troupe = await start(budgets, one);
    const session = await open(troupe, "s", tenant);
    await session.turn("first");
    const { records: before } = (await troupe.stats()).store;
    await session.turn("second");
    return (await troupe.stats()).store.records - before;
  };
  const without = await records(undefined, "acme");
  const unlimited = (tenant: string) => {
    asked.push(tenant);
    return undefined;
  };
  expect(await records(unlimited, "else")).toBe(without);
  expect(asked).toEqual(["else"]);
  // The row of its period.
  expect(await records(acme(1_000), "acme")).toBe(without + 1);
});
