import { createTroupe, type Session, type Troupe, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { EMPTY_OBJECT, fixture, plugin, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

const MODEL = fixture("models/show-prompt.mjs");
const tool = (name: string) => ({ description: name, inputSchema: EMPTY_OBJECT, execute: () => name });
const TOOLS = { weather: tool("weather"), shell: tool("shell") };

const start = (options: TroupeOptions): Promise<Troupe> => startTroupe({ model: MODEL, tools: TOOLS, ...options });

const layer = (slot: string, content: string) => ({ slots: { [slot]: { contributions: [{ content }] } } });

interface Seen {
  readonly system: string;
  readonly tools: readonly string[];
}

/** What the model is asked in the session's next turn. */
async function seenBy(session: Session): Promise<Seen> {
  return JSON.parse((await session.turn("hello")).text);
}

describe("a session's agent", () => {
  test("a session has the instructions, prompt, tools and limits of its agent, and the runtime's where the agent says nothing", async () => {
    const troupe = await start({
      instructions: "Be kind.",
      prompt: layer("guidance", "Host guidance."),
      maxSteps: 5,
      noProgressLimit: 3,
      agents: {
        "support@3": {
          instructions: "Be brief.",
          prompt: layer("intro", "You are Ada."),
          tools: ["weather"],
          limits: { maxSteps: 2 },
        },
        "sales@1": {},
      },
    });
    const support = await troupe.session("a", { agent: "support@3" });
    const seen = await seenBy(support);
    expect(seen.tools).toEqual(["weather"]);
    for (const words of ["Be brief.", "You are Ada.", "Host guidance."]) expect(seen.system).toContain(words);
    expect(seen.system).not.toContain("Be kind.");
    expect((await support.view()).config).toMatchObject({ instructions: "Be brief.", maxSteps: 2, noProgressLimit: 3 });
    const sales = await seenBy(await troupe.session("b", { agent: "sales@1" }));
    expect(sales.tools).toEqual(["shell", "weather"]);
    expect(sales.system).toContain("Be kind.");
    const plain = await seenBy(await troupe.session("c"));
    expect(plain).toEqual(sales);
  });

  test("an agent's model answers its sessions, and a session's or turn's model stands before it", async () => {
    const troupe = await start({
      models: { small: fixture("models/obeys.mjs") },
      agents: { "support@3": { model: "small" }, "own@1": { model: fixture("models/told.mjs") } },
    });
    const modelOf = async (session: Session, model?: string) =>
      (await session.turn("whole hi", model === undefined ? {} : { model })).modelCallRecords[0]?.model;
    const support = await troupe.session("a", { agent: "support@3" });
    expect(await modelOf(support)).toBe("obeys");
    expect(await modelOf(await troupe.session("b"))).toBe("show-prompt");
    expect(await modelOf(await troupe.session("c", { agent: "own@1" }))).toBe("told");
    await support.configure({ model: null });
    expect(await modelOf(support)).toBe("obeys");
  });

  test("the agent and its version are told by info and the list of sessions, and kept when the store is opened again", async () => {
    const path = await tempFolder();
    const options = {
      model: MODEL,
      tools: TOOLS,
      store: { path },
      agents: { "support@3": { instructions: "Three." } },
    };
    const first = await createTroupe(options);
    const session = await first.session("a", { agent: "support" });
    expect((await session.info()).agent).toBe("support@3");
    await session.turn("hello");
    await first.close();
    const again = await start({ ...options, agents: { ...options.agents, "support@4": { instructions: "Four." } } });
    expect((await again.listSessions()).sessions).toMatchObject([{ id: "a", agent: "support@3" }]);
    const opened = await again.session("a", { agent: "support" });
    expect((await opened.info()).agent).toBe("support@3");
    expect((await seenBy(opened)).system).toContain("Three.");
    expect((await seenBy(await again.session("b", { agent: "support" }))).system).toContain("Four.");
  });

  test.each(["parked", "moved", "on a worker that died"])("a session keeps its agent when it is %s", async (how) => {
    const troupe = await start({ sessionWorkers: 2, agents: { "support@3": { tools: ["weather"] } } });
    const session = await troupe.session("a", { agent: "support" });
    await session.turn("hello");
    if (how === "parked") await session.park();
    else if (how === "moved") {
      await troupe.move("a", 0);
      await troupe.move("a", 1);
    } else for (const worker of [0, 1]) await troupe.kill({ sessionWorker: worker });
    expect((await seenBy(session)).tools).toEqual(["weather"]);
    expect((await session.info()).agent).toBe("support@3");
  });

  test("an exported session has its agent where it is imported", async () => {
    const agents = { "support@3": { tools: ["weather"] } };
    const troupe = await start({ agents });
    await (await troupe.session("a", { agent: "support" })).turn("hello");
    for (const format of ["binary", "json"] as const) {
      const bytes = await troupe.exportSession("a", format === "json" ? { format } : {});
      const other = await start({ agents });
      await other.importSession(bytes);
      const imported = await other.session("a");
      expect((await imported.info()).agent).toBe("support@3");
      expect((await seenBy(imported)).tools).toEqual(["weather"]);
    }
  });

  test("what a session is configured with stands before its agent, and the rest goes on being the agent's", async () => {
    const troupe = await start({ agents: { "support@3": { instructions: "Three.", limits: { maxSteps: 3 } } } });
    const session = await troupe.session("a", { agent: "support@3" });
    await session.configure({ maxSteps: 7 });
    await session.park();
    expect((await session.view()).config).toMatchObject({ instructions: "Three.", maxSteps: 7 });
    await troupe.agents.put("support@3", { instructions: "Still three.", limits: { maxSteps: 4 } });
    expect((await seenBy(session)).system).toContain("Still three.");
    expect((await session.view()).config).toMatchObject({ instructions: "Still three.", maxSteps: 7 });
  });

  test("an agent's budget is what each of its sessions may spend", async () => {
    const troupe = await start({
      budget: { maxTokens: 1_000 },
      agents: { "support@3": { budget: { maxTokens: 1 } } },
    });
    const session = await troupe.session("a", { agent: "support@3" });
    await session.turn("hello");
    expect((await session.turn("again")).issues.map(({ code }) => code)).toEqual(["budget_spent"]);
    expect((await session.spending()).budget).toEqual({ maxTokens: 1 });
    expect((await (await troupe.session("b")).spending()).budget).toEqual({ maxTokens: 1_000 });
  });

  test("how an agent's models are called is laid over the runtime's word and under a session's and a turn's", async () => {
    const troupe = await start({
      model: { module: fixture("models/tells-context.mjs") },
      modelOptions: { temperature: 1, seed: 1, topP: 1 },
      agents: { "support@3": { modelOptions: { seed: 2, topP: 2 } } },
    });
    const session = await troupe.session("a", { agent: "support" });
    await session.configure({ modelOptions: { topP: 3 } });
    const { text } = await session.turn("hello", { modelOptions: { topK: 4 } });
    expect(JSON.parse(text).asked).toEqual({ temperature: 1, seed: 2, topP: 3, topK: 4 });
  });

  test("an agent's fallback model takes over when its model gives no answer", async () => {
    const troupe = await start({
      models: { spare: fixture("models/obeys.mjs") },
      agents: {
        "support@3": {
          model: fixture("models/fails.mjs"),
          modelRetry: { maxAttempts: 1 },
          fallbackModels: ["spare"],
        },
      },
    });
    const session = await troupe.session("a", { agent: "support" });
    expect((await session.turn("whole spare answer")).text).toBe("spare answer");
  });
});

describe("plugins of a session", () => {
  const PLUGINS = [{ module: plugin("counter") }, { module: plugin("notes") }];

  test("an agent's sessions have the plugins it names and none of the others' hooks, tools and operations", async () => {
    const troupe = await start({ plugins: PLUGINS, agents: { "support@3": { plugins: ["test.notes"] } } });
    const session = await troupe.session("a", { agent: "support" });
    expect((await seenBy(session)).tools).toEqual(["shell", "weather"]);
    expect(await session.query("notes.list")).toEqual([]);
    const { operations } = await session.surface();
    expect(operations.map(({ name }) => name)).toContain("notes.add");
    const all = await seenBy(await troupe.session("b"));
    expect(all.tools).toEqual(["boom", "count", "shell", "weather"]);
  });

  test("a root can be made with some of the plugins, and keeps to them when it is opened again", async () => {
    const path = await tempFolder();
    const options = { model: MODEL, tools: TOOLS, store: { path }, plugins: PLUGINS };
    const first = await createTroupe(options);
    await (await first.session("a", { plugins: ["test.counter"] })).turn("hello");
    await first.close();
    const again = await start(options);
    const session = await again.session("a", { plugins: ["test.counter"] });
    expect((await seenBy(session)).tools).toContain("count");
    expect((await refusalOf(session.query("notes.list"))).code).toBe("operation_unknown");
    expect((await refusalOf(again.session("a", { plugins: ["test.notes"] }))).code).toBe("plugins_mismatch");
    expect((await refusalOf(again.session("b", { plugins: ["test.coutner"] }))).message).toContain(
      "Did you mean test.counter?",
    );
  });

  test("an imported file does not do without plugins", async () => {
    const troupe = await start({ plugins: PLUGINS });
    await (await troupe.session("a", { plugins: [] })).turn("hello");
    await troupe.importSession(await troupe.exportSession("a"), { id: "b" });
    expect((await seenBy(await troupe.session("a"))).tools).not.toContain("count");
    expect((await seenBy(await troupe.session("b"))).tools).toContain("count");
  });

  test("an agent can have another protocol than the runtime", async () => {
    const toolsOf = async (troupe: Troupe, agent?: string) =>
      (await seenBy(await troupe.session(agent ?? "none", agent === undefined ? {} : { agent }))).tools;
    const odd = { module: plugin("one-tool-protocol") };
    const troupe = await start({
      protocol: odd,
      agents: { "plain@1": { protocol: "troupe.standard" }, "odd@1": {} },
    });
    expect([await toolsOf(troupe), await toolsOf(troupe, "odd")]).toEqual([["shell"], ["shell"]]);
    expect(await toolsOf(troupe, "plain")).toEqual(["shell", "weather"]);
    const other = await start({ protocols: [odd], agents: { "odd@1": { protocol: "test.one-tool" } } });
    expect([await toolsOf(other), await toolsOf(other, "odd")]).toEqual([["shell", "weather"], ["shell"]]);
    const session = await other.session("odd");
    await other.agents.put("plain@1", {});
    await session.setAgent("plain");
    expect((await seenBy(session)).tools).toEqual(["shell", "weather"]);
  });
});

describe("another agent for a session", () => {
  const agents = {
    "support@3": { instructions: "Three.", tools: ["weather"], plugins: ["test.counter"] },
    "support@4": { instructions: "Four.", tools: ["shell"], plugins: ["test.notes"] },
  };
  const options = { agents, plugins: [{ module: plugin("counter") }, { module: plugin("notes") }] };

  test("setAgent changes model, prompt, tools and plugins from the next turn on, and is stored before it resolves", async () => {
    const path = await tempFolder();
    const first = await createTroupe({ model: MODEL, tools: TOOLS, store: { path }, ...options });
    const session = await first.session("a", { agent: "support@3" });
    expect((await seenBy(session)).tools).toEqual(["weather"]);
    expect(await session.setAgent("support")).toBe("support@4");
    expect((await session.info()).agent).toBe("support@4");
    const seen = await seenBy(session);
    expect(seen.tools).toEqual(["shell"]);
    expect(seen.system).toContain("Four.");
    expect(await session.query("notes.list")).toEqual([]);
    await first.close();
    const again = await start({ store: { path }, ...options });
    expect((await (await again.session("a")).info()).agent).toBe("support@4");
  });

  test("the state of a plugin that an agent does without is there again with an agent that has it", async () => {
    const troupe = await start({ ...options, agents: { ...agents, "support@3": { plugins: ["test.counter"] } } });
    const session = await troupe.session("a", { agent: "support@3" });
    await session.turn("one");
    await session.setAgent("support@4");
    await session.turn("two");
    await session.setAgent("support@3");
    const events: unknown[] = [];
    for await (const activity of session.turn("three"))
      if (activity.type === "plugin_event") events.push(activity.event.payload);
    expect(events).toEqual([2]);
  });

  test("turns and setAgent keep their order", async () => {
    const troupe = await start(options);
    const session = await troupe.session("a", { agent: "support@3" });
    const [before, , after] = await Promise.all([session.turn("x"), session.setAgent("support@4"), session.turn("y")]);
    expect([before, after].map(({ text }) => (JSON.parse(text) as Seen).tools)).toEqual([["weather"], ["shell"]]);
  });

  test("an agent nobody registered is refused with agent_unknown, and the session keeps its own", async () => {
    const troupe = await start(options);
    const session = await troupe.session("a", { agent: "support@3" });
    const error = await refusalOf(session.setAgent("suport@3"));
    expect([error.code, error.message]).toEqual(["agent_unknown", expect.stringContaining("Did you mean support@3?")]);
    expect((await refusalOf(troupe.session("b", { agent: "billing" }))).code).toBe("agent_unknown");
    expect((await refusalOf(troupe.session("b", { agent: "no good name" }))).code).toBe("invalid_agent");
    expect((await seenBy(session)).tools).toEqual(["weather"]);
  });

  test("a session is not opened with another agent than it has, and gets one when it has none", async () => {
    const troupe = await start(options);
    const session = await troupe.session("a");
    await session.turn("hello");
    for (const parked of [false, true]) {
      if (parked) await session.park();
      await troupe.session("a", { agent: "support@3" });
      expect((await session.info()).agent).toBe("support@3");
      const error = await refusalOf(troupe.session("a", { agent: "support@4" }));
      expect([error.code, error.message]).toEqual(["agent_mismatch", expect.stringContaining("setAgent")]);
    }
    expect((await seenBy(session)).tools).toEqual(["weather"]);
  });

  test("what a session without an agent was configured with is kept when it gets one, and nothing else is", async () => {
    const troupe = await start({ ...options, instructions: "Runtime.", maxSteps: 9 });
    for (const id of ["a", "b"]) {
      const session = await troupe.session(id);
      await session.configure({ noProgressLimit: 2 });
      await session.turn("hello");
      await session.park();
      if (id === "a") await session.setAgent("support@3");
      else await troupe.session(id, { agent: "support@3" });
      expect((await session.view()).config).toMatchObject({ instructions: "Three.", noProgressLimit: 2, maxSteps: 9 });
      await session.park();
      expect((await session.view()).config).toMatchObject({ instructions: "Three.", noProgressLimit: 2, maxSteps: 9 });
    }
  });
});

describe("an agent whose version is gone", () => {
  async function gone(options: TroupeOptions) {
    const path = await tempFolder();
    const shared = { model: MODEL, tools: TOOLS, store: { path } };
    const first = await createTroupe({ ...shared, agents: { "support@3": { tools: ["weather"] } } });
    await (await first.session("a", { agent: "support" })).turn("hello");
    await first.close();
    return start({ ...shared, agents: { "support@4": { tools: ["shell"] } }, ...options });
  }

  test("its sessions' turns are refused with agent_unknown, while they can be read and given another agent", async () => {
    const troupe = await gone({});
    const session = await troupe.session("a");
    const error = await refusalOf(session.turn("hello"));
    expect([error.code, error.message]).toEqual(["agent_unknown", expect.stringContaining("support@3")]);
    expect(await session.messages()).toHaveLength(2);
    expect((await refusalOf(session.fork())).code).toBe("agent_unknown");
    await session.setAgent("support");
    expect((await seenBy(session)).tools).toEqual(["shell"]);
  });

  test("a session of it can be opened with another agent", async () => {
    const troupe = await gone({});
    const session = await troupe.session("a", { agent: "support@4" });
    expect((await seenBy(session)).tools).toEqual(["shell"]);
    expect((await session.info()).agent).toBe("support@4");
  });

  test("its sessions go on with the newest version when the host says so, and are stored with that", async () => {
    const troupe = await gone({ onMissingAgent: "newest" });
    const session = await troupe.session("a");
    expect((await seenBy(session)).tools).toEqual(["shell"]);
    expect((await session.info()).agent).toBe("support@4");
    expect((await troupe.listSessions()).sessions).toMatchObject([{ agent: "support@4" }]);
  });

  test("an agent without any version left is refused also when the host wants the newest", async () => {
    const troupe = await gone({ onMissingAgent: "newest", agents: { "sales@1": {} } });
    expect((await refusalOf((await troupe.session("a")).turn("hello"))).code).toBe("agent_unknown");
  });
});
