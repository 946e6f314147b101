import { createTroupe, PluginStack, type Session, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  collect,
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  oneToolCall,
  openSessions,
  PATIENT,
  plugin,
  RESIDENT,
  refusalOf,
  registers,
  remembering,
  startTroupe,
} from "../../support/runtime.js";

/** What a plugin of these tests contributes; see pieces.mjs. */
interface Wanted {
  readonly tools?: readonly { readonly name: string; readonly id?: string; readonly onDemand?: boolean }[];
  readonly hooks?: readonly { readonly name: string; readonly gives?: unknown }[];
  readonly queries?: readonly string[];
  readonly commands?: readonly string[];
  readonly tasks?: readonly string[];
  readonly actions?: readonly string[];
  readonly triggers?: readonly object[];
  readonly protocols?: readonly (readonly string[])[];
  readonly extensions?: readonly object[];
}

const FIRST = "test.first";
const SECOND = "test.second";
const declares = (id: string, wanted: Wanted) =>
  new URL(`${plugin("declares")}?id=${id}&wanted=${encodeURIComponent(JSON.stringify(wanted))}`);

const look = { name: "look" };
const issue = { resourceType: "tracker", alias: "issues", event: "opened" };

/** Two plugins that cannot both be: what both have, what each brings, the error's code, what it names. */
const CLASHES: [what: string, first: Wanted, second: Wanted, code: string, names: string][] = [
  ["a tool of one name", { tools: [look] }, { tools: [look] }, "duplicate_tool", "look"], // §15.2
  [
    "tools of one name with different ids", // §15.3
    { tools: [{ ...look, id: "first-look" }] },
    { tools: [{ ...look, id: "second-look" }] },
    "duplicate_tool",
    "look",
  ],
  [
    "tools of one id with different names",
    { tools: [{ name: "look", id: "eye" }] },
    { tools: [{ name: "see", id: "eye" }] },
    "duplicate_tool",
    "eye",
  ],
  ["a query of one name", { queries: ["ask"] }, { queries: ["ask"] }, "duplicate_operation", "ask"], // §15.6
  ["a query and a task of one name", { queries: ["ask"] }, { tasks: ["ask"] }, "duplicate_operation", "ask"],
  ["a command and an action of one name", { commands: ["ask"] }, { actions: ["ask"] }, "duplicate_operation", "ask"],
  ["one trigger", { triggers: [issue] }, { triggers: [issue] }, "duplicate_trigger", "issues.opened"], // §15.7
  [
    "triggers of one alias and event with different resource types",
    { triggers: [issue] },
    { triggers: [{ ...issue, resourceType: "mail" }] },
    "duplicate_trigger",
    "issues.opened",
  ],
  [
    "a tool result projector", // §15.4
    { hooks: [{ name: "toolResultProjector" }] },
    { hooks: [{ name: "toolResultProjector" }] },
    "duplicate_singleton",
    "tool_result_projector",
  ],
  [
    "a prose projector",
    { hooks: [{ name: "proseProjector" }] },
    { hooks: [{ name: "proseProjector" }] },
    "duplicate_singleton",
    "assistant_prose_projector",
  ],
];

const PROTOCOL_PIECES = ["session", "driver", "codeExecutor"];

/** One plugin that contributes something twice. */
const SELF_CLASHES: [what: string, wanted: Wanted, code: string, names: string][] = [
  ["a tool", { tools: [look, look] }, "duplicate_tool", "look"],
  ["a tool's name under two ids", { tools: [look, { ...look, id: "other" }] }, "duplicate_tool", "look"],
  ["a query", { queries: ["ask", "ask"] }, "duplicate_operation", "ask"],
  ["a name for a query and a task", { queries: ["ask"], tasks: ["ask"] }, "duplicate_operation", "ask"],
  ["a trigger", { triggers: [issue, issue] }, "duplicate_trigger", "issues.opened"],
  [
    "a tool result projector",
    { hooks: [{ name: "toolResultProjector" }, { name: "toolResultProjector" }] },
    "duplicate_singleton",
    "tool_result_projector",
  ],
];

describe.each(["worker", "inline"] as const)("plugins that register, in the tier %s", (tier) => {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      plugins: [
        remembering(registers(FIRST), {
          tier,
          options: {
            extensions: [
              { extensionId: "words", payload: "one" },
              { extensionId: "numbers", payload: 1 },
            ],
          },
        }),
        remembering(registers(SECOND), { tier, options: { extensions: [{ extensionId: "words", payload: "two" }] } }),
        remembering(plugin("lives"), { tier }),
        remembering(declares("test.declared", { tools: [{ name: "declared" }], queries: ["declared.ask"] }), { tier }),
      ],
      tools: { echo: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => "of the host" } },
      model: fixture("models/obeys.mjs"),
      drainMs: 500,
    });
  });
  afterAll(() => troupe.close());

  /** Opens a session for which the first and the second plugin register this. */
  const open = (id: string, first: object = {}, second: object = {}): Promise<Session> =>
    troupe.session(id, { pluginOptions: { [FIRST]: first as never, [SECOND]: second as never } });

  // §15.1
  test("what they register is on that session and on no other, beside what is declared, the host's and the standard protocol", async () => {
    const session = await open(
      "with",
      {
        tools: [look],
        queries: ["first.ask"],
        hooks: [{ name: "promptContributor", gives: { slot: "guidance", content: "Look twice." } }],
      },
      { commands: ["second.act"], tasks: ["second.work"], actions: ["second.do"] },
    );
    const { tools, operations, triggers } = await session.surface();
    expect(tools.map(({ name }) => name)).toEqual(["declared", "echo", "look"]);
    const others = (name: string) => !/^(test|lives)\./.test(name);
    expect(operations.filter(({ name }) => others(name)).map(({ name, kind }) => [name, kind])).toEqual([
      ["declared.ask", "query"],
      ["first.ask", "query"],
      ["second.act", "command"],
      ["second.do", "action"],
      ["second.work", "task"],
    ]);
    expect(triggers).toEqual([]);
    const asked = JSON.parse((await session.turn("hi")).text);
    expect([asked.system, asked.tools]).toEqual(["## Guidance\n\nLook twice.", ["declared", "echo", "look"]]);
    expect(firstToolValue(await session.turn("call look"))).toBe(FIRST);
    expect(firstToolValue(await session.turn("call declared"))).toBe("test.declared");
    expect(await session.query("first.ask")).toBe(FIRST);
    expect((await session.command("second.act")).output).toBe(SECOND);
    expect((await session.task("second.work")).output).toBe(SECOND);
    expect(await session.action("second.do")).toEqual({ status: "success", value: SECOND });

    const other = await open("without");
    const plain = JSON.parse((await other.turn("hi")).text);
    expect([plain.system, plain.tools]).toEqual(["", ["declared", "echo"]]);
    expect((await refusalOf(other.query("first.ask"))).code).toBe("operation_unknown");
  });

  // §15.2 §15.3 §15.4 §15.6 §15.7
  test.each(CLASHES)(
    "%s, registered by two of them, fails the open and names both",
    async (what, first, second, code, names) => {
      const before = await openSessions(troupe);
      const error = await refusalOf(open(what, first, second));
      expect(error.code).toBe(code);
      for (const name of [FIRST, SECOND, names]) expect(error.message).toContain(name);
      expect(await openSessions(troupe)).toBe(before);
      // Nothing is left of it: the id is free.
      expect(await (await open(what, first)).info()).toMatchObject({ revision: 0, turns: 0 });
    },
  );

  test.each(SELF_CLASHES)(
    "%s, registered twice by one of them, fails the open and names it",
    async (what, wanted, code, names) => {
      const error = await refusalOf(open(`self: ${what}`, wanted));
      expect(error.code).toBe(code);
      for (const name of [FIRST, names]) expect(error.message).toContain(name);
    },
  );

  // §15.8
  test("a trigger that is declared for a session is found there, with the schema of its payload", async () => {
    const payloadSchema = { type: "object", properties: { title: { type: "string" } } };
    const session = await open(
      "triggers",
      { triggers: [{ ...issue, payloadSchema }] },
      { triggers: [{ ...issue, event: "closed" }] },
    );
    expect((await session.surface()).triggers).toEqual([
      { resourceType: "tracker", alias: "issues", event: "opened", payloadSchema },
      { resourceType: "tracker", alias: "issues", event: "closed", payloadSchema: {} },
    ]);
    expect((await (await open("no triggers")).surface()).triggers).toEqual([]);
  });

  // §15.9
  test("every plugin is told the extensions of all, by id and in the order of the plugins, for every session", async () => {
    const extensions = { words: ["one", "two"], numbers: [1] };
    for (const id of ["extensions 1", "extensions 2"]) {
      const session = await open(id, { hooks: [{ name: "toolCatalogContributor" }] });
      expect(await session.query(`${FIRST}.told`)).toMatchObject({ extensions });
      expect(await session.query(`${SECOND}.told`)).toMatchObject({ extensions });
      await session.turn("hi");
      const [[, facts]] = await session.query<[[string, object]]>(`${FIRST}.calls`);
      expect(facts).toMatchObject({ extensions });
    }
  });

  // §15.12
  test("an id has one session at a time: opened twice it is one, registered for once, and it cannot be made again", async () => {
    // What registers again because it was parked is not counted here.
    const plugins = [remembering(registers(FIRST), { tier })];
    const own = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins });
    const open = (id: string) => own.session(id);
    const [one, two] = await Promise.all([open("one"), open("one")]);
    expect(one).toBe(two);
    const registeredFor = async () => (await one.query<string[]>(`${FIRST}.sessions`)).filter((id) => id === "one");
    expect(await registeredFor()).toEqual(["one"]);
    const parent = await open("parent of one");
    const live = await refusalOf(parent.fork({ id: "one" }));
    expect([live.code, live.details]).toEqual(["session_exists", { sessionId: "one" }]);
    // Closed and never stored, there is no such session any more.
    await one.close();
    expect(await (await parent.fork({ id: "one" })).info()).toMatchObject({ parent: "parent of one" });
    // Closed but stored, it can only be opened again.
    await one.close();
    expect((await refusalOf(parent.fork({ id: "one" }))).code).toBe("session_exists");
    expect(await (await open("one")).info()).toMatchObject({ parent: "parent of one" });
    expect(await registeredFor()).toEqual(["one", "one", "one"]);
    // A closed session is opened again by whoever may ask about it; one nobody knows is unknown.
    const found = (sessionId: string) => parent.query(`${FIRST}.view`, { sessionId });
    expect(await found("one")).toMatchObject({ sessionId: "one", parentSessionId: "parent of one" });
    expect((await refusalOf(found("nobody"))).code).toBe("session_not_visible");
  });

  // §15.13
  test("a plugin for roots registers nothing in a child, nor when the child is opened again", async () => {
    const rootOnly = { rootOnly: true, tools: [look] };
    const root = await open("root", rootOnly);
    const names = async (session: Session) => (await session.surface()).tools.map(({ name }) => name);
    expect(await names(root)).toEqual(["declared", "echo", "look"]);
    const child = await root.fork({ id: "child", authority: { pluginOptions: { [FIRST]: rootOnly } } });
    expect(await names(child)).toEqual(["declared", "echo"]);
    expect((await refusalOf(child.query(`${FIRST}.told`))).code).toBe("operation_unknown");
    expect(await child.query(`${SECOND}.told`)).toMatchObject({ isRootSession: false, parentSessionId: "root" });
    expect(await root.query(`${SECOND}.told`)).toMatchObject({ isRootSession: true });
    expect(firstToolValue(await child.turn("call look"))).toBe("tool_unavailable");
    await child.close();
    expect(await names(await troupe.session("child"))).toEqual(["declared", "echo"]);
  });

  // §15.14
  test("the first that cannot register ends the open: those behind it are not asked", async () => {
    const error = await refusalOf(open("unregistrable", { throws: "no room" }));
    expect(error.message).toContain("no room");
    const session = await open("registrable");
    expect(await session.query<string[]>(`${FIRST}.sessions`)).toContain("unregistrable");
    expect(await session.query<string[]>(`${SECOND}.sessions`)).not.toContain("unregistrable");
    // Those before it were asked, and the id is free again.
    expect((await refusalOf(open("unregistrable", {}, { throws: "no room" }))).message).toContain("no room");
    expect((await open("unregistrable")).id).toBe("unregistrable");
  });

  test("registering is done at once: later, or as a promise, it is refused", async () => {
    const session = await open("late");
    expect((await refusalOf(session.query(`${FIRST}.later`))).message).toContain("after register()");
    const error = await refusalOf(open("asynchronous", { async: true }));
    expect([error.code, error.message]).toEqual(["plugin_invalid", expect.stringContaining("asynchronous")]);
  });

  // §15.15
  test("sessionReady comes when all is registered, then what is stored is restored, then the hooks are told", async () => {
    // A plugin's life without parking.
    const plugins = [remembering(plugin("lives"), { tier })];
    const own = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins });
    const session = await own.session("life");
    const fresh = ["register", "sessionReady life", "sessionRestored"];
    expect(await session.query("lives.life")).toEqual(fresh);
    await session.turn("hi");
    await session.close();
    expect(await (await own.session("life")).query("lives.life")).toEqual([
      "register",
      "sessionReady life",
      "restore 3",
      "sessionRestored",
    ]);
  });
});

test("a plugin that registers gets its state back when its thread is replaced, also in a session that was never closed", async () => {
  const troupe = await startTroupe({
    ...RESIDENT, // Opened again, it would get its state back like any session.
    sessionWorkers: 1,
    plugins: [{ module: plugin("lives"), ...PATIENT }],
  });
  const session = await troupe.session("s");
  await session.turn("hi");
  await troupe.kill({ plugin: "test.lives" });
  expect(await session.query("lives.life")).toEqual(["register", "sessionReady s", "restore 3"]);
});

describe("plugins that register a protocol", () => {
  // §15.4
  test("fail the open when two of them, or one of them twice, have a piece of it; the error names both", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [
        { module: registers(FIRST), tier: "inline" },
        { module: registers(SECOND), tier: "inline" },
      ],
    });
    const open = (first: Wanted, second: Wanted = {}) =>
      refusalOf(troupe.session("s", { pluginOptions: { [FIRST]: first as never, [SECOND]: second as never } }));
    for (const slot of PROTOCOL_PIECES) {
      const piece = { protocols: [[slot]] };
      const kind = `protocol ${slot}`;
      const two = await open(piece, piece);
      expect([two.code, two.details]).toEqual(["duplicate_singleton", { kind, plugins: [FIRST, SECOND] }]);
      const twice = await open({ protocols: [[slot], [slot]] });
      expect([twice.code, twice.details]).toEqual(["duplicate_singleton", { kind, plugins: [FIRST, FIRST] }]);
    }
  });

  test("cannot do so from another thread", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module: registers(FIRST) }] });
    const protocols = [["codeExecutor"]];
    const error = await refusalOf(troupe.session("s", { pluginOptions: { [FIRST]: { protocols } } }));
    expect([error.code, error.message]).toEqual(["plugin_invalid", expect.stringContaining('"inline"')]);
    const declared = await refusalOf(startTroupe({ plugins: [{ module: declares(FIRST, { protocols }) }] }));
    expect([declared.code, declared.message]).toEqual(["plugin_invalid", expect.stringContaining('"inline"')]);
  });
});

describe("plugins that declare", () => {
  // §15.2 §15.3 §15.4 §15.6 §15.7
  test.each(CLASHES)(
    "%s, declared by two of them, refuses the start and names both",
    async (_what, first, second, code, names) => {
      const error = await refusalOf(
        startTroupe({
          sessionWorkers: 1,
          plugins: [
            { module: declares(FIRST, first), tier: "inline" },
            { module: declares(SECOND, second), tier: "inline" },
          ],
        }),
      );
      expect(error.code).toBe(code);
      for (const name of [FIRST, SECOND, names]) expect(error.message).toContain(name);
    },
  );

  // §15.4
  test.each(PROTOCOL_PIECES)(
    "a protocol's %s, declared by two of them, fails the open and names both",
    async (slot) => {
      const troupe = await startTroupe({
        sessionWorkers: 1,
        plugins: [
          { module: declares(FIRST, { protocols: [[slot]] }), tier: "inline" },
          { module: declares(SECOND, { protocols: [[slot]] }), tier: "inline" },
        ],
      });
      const error = await refusalOf(troupe.session("s"));
      expect([error.code, error.details]).toEqual([
        "duplicate_singleton",
        { kind: `protocol ${slot}`, plugins: [FIRST, SECOND] },
      ]);
    },
  );

  // §15.6
  test("a query and a task of one name in one plugin refuse the start", async () => {
    const error = await refusalOf(
      startTroupe({ plugins: [{ module: declares(FIRST, { queries: ["ask"], tasks: ["ask"] }) }] }),
    );
    expect([error.code, error.details]).toEqual(["duplicate_operation", { name: "ask", plugins: [FIRST, FIRST] }]);
  });

  test("what one declares and another registers clashes as well", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [
        { module: declares(FIRST, { tools: [look], queries: ["ask"] }) },
        { module: registers(SECOND), tier: "inline" },
      ],
    });
    const open = (wanted: Wanted) => refusalOf(troupe.session("s", { pluginOptions: { [SECOND]: wanted as never } }));
    expect((await open({ tools: [look] })).code).toBe("duplicate_tool");
    expect((await open({ tasks: ["ask"] })).code).toBe("duplicate_operation");
  });
});

describe("the protocol", () => {
  const protocol = (slots: string[]) => ({ module: declares("test.protocol", { protocols: [slots] }) });

  // §15.5
  test.each([
    [["session"], "driver"],
    [["driver"], "session"],
    [[], "session"],
  ])("that has only %j fails the open: its %s is missing", async (slots, piece) => {
    const troupe = await startTroupe({ sessionWorkers: 1, protocol: protocol(slots) });
    const error = await refusalOf(troupe.session("s"));
    expect([error.code, error.details]).toEqual(["protocol_missing", { piece }]);
  });

  // §15.10
  test("of the box is replaced by the plugin that has its id", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [
        { module: declares("troupe.standard", { protocols: [["session", "driver"]] }), tier: "inline" },
        { module: declares("test.extends", { extensions: [{ extensionId: "words", payload: "one" }] }) },
        { module: declares("test.triggers", { triggers: [issue] }) },
      ],
      model: fixture("models/obeys.mjs"),
    });
    const result = await (await troupe.session("s")).turn("whatever");
    expect(result.text).toBe("by the protocol of a test");
    expect((await troupe.stats()).plugins.map(({ id }) => id)).toEqual([
      "troupe.standard",
      "test.extends",
      "test.triggers",
    ]);
  });

  // §15.9
  test("is told the extensions and triggers of all plugins", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [
        { module: declares("test.a", { extensions: [{ extensionId: "words", payload: "one" }] }) },
        { module: declares("test.b", { triggers: [issue], extensions: [{ extensionId: "words", payload: 2 }] }) },
      ],
      protocol: protocol(["session", "driver"]),
      model: fixture("models/show-prompt.mjs"),
    });
    const activities = await collect((await troupe.session("s")).turn("hi"));
    const said = activities.find((activity) => activity.type === "text_delta");
    const { system } = JSON.parse(said?.type === "text_delta" ? said.text : "");
    expect(JSON.parse(system.replace("## Execution\n\n", ""))).toEqual({
      extensions: { words: ["one", 2] },
      triggers: [{ ...issue, payloadSchema: {} }],
    });
  });
});

// §15.11
test("a runtime takes its plugins from a stack, in its order", async () => {
  const stack = new PluginStack()
    .push("b", { module: declares("test.b", {}) })
    .push("dropped", { module: plugin("counter") })
    .push("a", { module: declares("test.a", {}), tier: "inline" })
    .remove("dropped")
    .replace("b", { module: plugin("with-options") })
    .configure("b", (entry) => ({ ...entry, options: { max: 1 } }));
  const troupe = await startTroupe({ sessionWorkers: 1, plugins: stack, model: oneToolCall("none") });
  expect((await troupe.stats()).plugins.map(({ id, tier }) => [id, tier])).toEqual([
    ["test.with-options", "worker"],
    ["test.a", "inline"],
  ]);
});
