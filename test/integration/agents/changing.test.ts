import type { AgentDefinition, Session, TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { EMPTY_OBJECT, fixture, plugin, refusalOf, startTroupe, until } from "../../support/runtime.js";

const MODEL = fixture("models/show-prompt.mjs");
const tool = (name: string) => ({ description: name, inputSchema: EMPTY_OBJECT, execute: () => name });
const start = (options: TroupeOptions = {}) =>
  startTroupe({ model: MODEL, tools: { weather: tool("weather"), shell: tool("shell") }, ...options });
const systemOf = async (session: Session): Promise<string> => JSON.parse((await session.turn("hello")).text).system;

test("when put has resolved, the next turn of every session on every worker has the agent as it was put", async () => {
  const troupe = await start({ sessionWorkers: 2, agents: { "support@3": { instructions: "Version 0." } } });
  const ids = Array.from({ length: 8 }, (_, n) => `chat-${n}`);
  const sessions = await Promise.all(ids.map((id) => troupe.session(id, { agent: "support" })));
  await Promise.all(sessions.map(systemOf));
  expect(new Set(await Promise.all(sessions.map(async (each) => (await each.info()).threadId))).size).toBe(2);
  for (let n = 1; n <= 5; n++) {
    await troupe.agents.put("support@3", { instructions: `Version ${n}.` });
    expect(new Set(await Promise.all(sessions.map(systemOf)))).toEqual(new Set([`Version ${n}.`]));
  }
});

test("a turn that runs goes on as it began, and what waits behind it has the agent as it was put", async () => {
  let open: (() => void) | undefined;
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  const wait = { description: "waits", inputSchema: EMPTY_OBJECT, execute: () => gate.then(() => "through") };
  const troupe = await start({
    model: fixture("models/obeys.mjs"),
    tools: { wait },
    agents: { "support@3": { instructions: "Old." } },
  });
  const session = await troupe.session("a", { agent: "support" });
  const running = session.turn("call wait\nshow");
  const called = (async () => {
    for await (const activity of running) if (activity.type === "tool_call_started") return;
  })();
  await called;
  await troupe.agents.put("support@3", { instructions: "New." });
  const next = session.turn("show");
  await session.enqueue("show");
  open?.();
  expect(JSON.parse((await running).text).system).toContain("Old.");
  expect(JSON.parse((await next).text).system).toContain("New.");
  await until("the turn that waited is stored", async () => (await session.info()).turns === 3);
  const last = (await session.messages()).at(-1)?.parts[0];
  expect(last).toMatchObject({ type: "text", text: expect.stringContaining("New.") });
});

test("a worker that starts later, or anew, has the agents as they are then", async () => {
  const troupe = await start({ sessionWorkers: 2 });
  await troupe.agents.put("support@3", { instructions: "Put.", model: fixture("models/show-prompt.mjs") });
  for (const worker of [0, 1]) {
    await troupe.kill({ sessionWorker: worker });
    await troupe.recycle(worker);
  }
  for (const id of ["a", "b", "c", "d"])
    expect(await systemOf(await troupe.session(id, { agent: "support" }))).toContain("Put.");
});

test("agents that were put are listed with their versions, and are gone when they are removed", async () => {
  const troupe = await start({ agents: { "support@3": { instructions: "Three." } } });
  await troupe.agents.put("support@4", { instructions: "Four." });
  expect(troupe.agents.list()).toEqual([
    { name: "support@3", agent: "support", version: "3", definition: { instructions: "Three." } },
    { name: "support@4", agent: "support", version: "4", definition: { instructions: "Four." } },
  ]);
  const session = await troupe.session("a", { agent: "support" });
  expect(await systemOf(session)).toContain("Four.");
  expect(await troupe.agents.remove("support@4")).toBe(true);
  expect(await troupe.agents.remove("support@4")).toBe(false);
  expect((await refusalOf(session.turn("hello"))).code).toBe("agent_unknown");
  expect(await systemOf(await troupe.session("b", { agent: "support" }))).toContain("Three.");
  expect(await session.setAgent("support")).toBe("support@3");
  expect(await systemOf(session)).toContain("Three.");
});

const BAD: readonly [why: string, name: string, definition: AgentDefinition, says: string][] = [
  ["a tool nobody has", "support@3", { tools: ["weahter"] }, "Did you mean weather?"],
  ["a plugin nobody has", "support@3", { plugins: ["test.countr"] }, "Did you mean test.counter?"],
  ["a protocol nobody has", "support@3", { protocol: "test.code" }, "troupe.standard"],
  ["a model nobody has", "support@3", { model: "smal" }, "Did you mean small?"],
  ["a fallback model nobody has", "support@3", { fallbackModels: ["smal"] }, "fallbackModels"],
  ["a setting nobody knows", "support@3", { instruction: "x" } as AgentDefinition, 'Did you mean "instructions"?'],
  ["a limit nobody knows", "support@3", { limits: { steps: 3 } as never }, "limits"],
  ["limits that are none", "support@3", { limits: { maxSteps: 0 } }, "maxSteps"],
  ["a canary that is no share", "support@3", { canary: 2 }, "canary"],
  ["a name that is none", "support@@", {}, "support@@"],
  ["a version that is there in other words", "sales@1.0", {}, "sales@1"],
  ["something that is no data", "support@3", { tools: [() => "x"] as never }, "plain data"],
];

test.each(BAD)("an agent with %s is refused, and nothing is changed", async (_why, name, definition, says) => {
  const troupe = await start({
    models: { small: MODEL },
    plugins: [{ module: plugin("counter") }],
    agents: { "sales@1": { instructions: "Sell." }, "support@3": { instructions: "Help." } },
  });
  const before = troupe.agents.list();
  const error = await refusalOf(troupe.agents.put(name, definition));
  expect(["invalid_agent", "invalid_options", "invalid_config"]).toContain(error.code);
  expect(error.message).toContain(says);
  expect(troupe.agents.list()).toEqual(before);
  expect(await systemOf(await troupe.session("a", { agent: "support" }))).toContain("Help.");
});

test("an agent whose model's module cannot be loaded is refused, and nothing is changed", async () => {
  const troupe = await start({ agents: { "support@3": { instructions: "Help." } } });
  const error = await refusalOf(troupe.agents.put("support@3", { model: fixture("models/nowhere.mjs") }));
  expect(error.code).toBe("model_module_not_found");
  expect(await systemOf(await troupe.session("a", { agent: "support" }))).toContain("Help.");
});

test("agents that cannot be used keep the runtime from starting", async () => {
  const error = await refusalOf(start({ agents: { "support@3": { tools: ["weahter"] } } }));
  expect([error.code, error.message]).toEqual(["invalid_agent", expect.stringContaining("Did you mean weather?")]);
  expect((await refusalOf(start({ agents: [] as never }))).code).toBe("invalid_agent");
});

test("a canary takes its share of new sessions, the same ones each time, and sessions that are there stay as they are", async () => {
  const troupe = await start({ agents: { "support@3": {} } });
  const before = await troupe.session("before", { agent: "support" });
  await before.turn("hello");
  await troupe.agents.put("support@4", { canary: 0.5 });
  const ids = Array.from({ length: 40 }, (_, n) => `chat-${n}`);
  const versions = async () =>
    Promise.all(ids.map(async (id) => (await (await troupe.session(id, { agent: "support" })).info()).agent));
  const first = await versions();
  expect(new Set(first)).toEqual(new Set(["support@3", "support@4"]));
  expect(await versions()).toEqual(first);
  expect((await before.info()).agent).toBe("support@3");
  expect((await (await troupe.session("exact", { agent: "support@4" })).info()).agent).toBe("support@4");
});

test("changes that are asked for at the same time are made one after another, in their order", async () => {
  const troupe = await start();
  await Promise.all(
    Array.from({ length: 6 }, (_, n) => troupe.agents.put("support@1", { instructions: `Number ${n}.` })),
  );
  expect(await systemOf(await troupe.session("a", { agent: "support" }))).toContain("Number 5.");
});

test("a closed runtime takes no agents", async () => {
  const troupe = await start();
  await troupe.close();
  expect((await refusalOf(troupe.agents.put("support@1", {}))).code).toBe("closed");
});
