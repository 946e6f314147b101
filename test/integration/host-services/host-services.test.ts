import { createTroupe, type SessionView, scriptedModel, type TraceEvent, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { only, untimed } from "../../support/activities.js";
import {
  type Answer,
  ask,
  askInTurn,
  asking,
  askOne,
  type Call,
  spentBeside,
  told,
  turnThatAsks,
  usage,
  valueIn,
} from "../../support/asking.js";
import { collect, plugin, startTroupe, until } from "../../support/runtime.js";

const named = (answer: Answer | undefined) => valueIn<{ name: string }[]>(answer).map(({ name }) => name);

// §15.75
describe.each(["worker", "inline"] as const)("host services for a plugin in the tier %s", (tier) => {
  let troupe: Troupe;
  const traces: TraceEvent[] = [];
  beforeAll(async () => {
    troupe = await createTroupe(asking(tier, { onTrace: (event) => traces.push(event) }));
  });
  afterAll(() => troupe.close());

  describe("about the own session", () => {
    test("are answered from the running turn and show what it has done so far", async () => {
      const session = await troupe.session("own");
      await session.turn("before");
      const answers = await askInTurn(
        session,
        ["snapshotCurrent"],
        ["snapshotSession", "own"],
        ["readMessages", "own"],
        ["readMessages", "own", { from: -2, to: -1 }],
        ["toolCatalog", "own"],
        ["toolState", "own"],
      );
      expect(answers[0]).toMatchObject({
        value: {
          sessionId: "own",
          parentSessionId: null,
          config: { instructions: "", maxSteps: 32, maxContextTokens: null, metadata: {} },
          running: true,
          revision: 1,
          turnIndex: 1,
          // What the first turn left, the second's input and the call the model has made.
          messageCount: 4,
          leafNodeId: "own@1.1",
          frameId: "main",
          frames: [],
          usage: usage(20, 10),
          ledger: {},
          toolGeneration: 1,
        },
      });
      expect(answers[1]).toEqual(answers[0]);
      const messages = valueIn<{ role: string }[]>(answers[2]);
      expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "user", "assistant"]);
      expect(answers[3]?.value).toEqual([messages[2]]);
      expect(named(answers[4])).toEqual(["ask_host", "weather"]);
      expect(answers[5]?.value).toMatchObject({ generation: 1, tools: { weather: { member: true, orphaned: false } } });
      expect(await session.view()).toMatchObject({
        running: null,
        revision: 2,
        turnIndex: 2,
        messageCount: 6,
        usage: usage(30, 15),
      });
    });

    test("are answered to every kind of operation; a query can read while a turn runs", async () => {
      const session = await troupe.session("own/operations");
      const calls: readonly Call[] = [["snapshotCurrent"], ["toolState", "own/operations"]];
      const running = session.turn(told({ hang: true }));
      for await (const { type } of running) if (type === "model_call_started") break;
      const answers = (await session.query("host.read", { calls })) as Answer[];
      expect(answers).toEqual([
        { value: expect.objectContaining({ running: true, revision: 0, messageCount: 1 }) },
        { missing: true },
      ]);
      running.cancel();
      await running;
      const idle = { value: expect.objectContaining({ running: false, revision: 1, messageCount: 1 }) };
      const state = { value: expect.objectContaining({ generation: 1 }) };
      expect((await session.command("host.ask", { calls })).output).toEqual([idle, state]);
      expect((await session.task("host.task", { calls })).output).toEqual([idle, state]);
      expect(await session.action("host.act", { calls })).toEqual({ status: "success", value: [idle, state] });
    });

    test("many at once from one call are all answered, and none that nobody awaits does any harm", async () => {
      const session = await troupe.session("own/many");
      const many = Array.from(
        { length: 30 },
        (_, n): Call => (n % 2 === 0 ? ["snapshotCurrent"] : ["toolCatalog", "own/many"]),
      );
      const answers = await askInTurn(
        session,
        ["@atOnce", ...many],
        ["@unawaited", "snapshotSession", "nowhere"],
        ["@unawaited", "startTurnStream", "nowhere", "hi"],
        ["@unawaited", "directCompletion", {}, "nobody"],
        ["@warnings"],
      );
      expect(valueIn<Answer[]>(answers[0]).map(({ value }) => value !== undefined)).toEqual(many.map(() => true));
      expect(answers.at(-1)).toEqual({ value: [] });
      expect((await session.turn("still here")).outcome.type).toBe("finished");
    });

    test("hand out copies: nothing a plugin does to them, or to what it gave, changes the session", async () => {
      const session = await troupe.session("own/copies");
      await session.turn("hello");
      const answers = await askInTurn(
        session,
        ["@spoil", "own/copies"],
        ["toolState", "own/copies"],
        ["readMessages", "own/copies", { to: 3 }],
      );
      expect(answers).toMatchObject([
        { value: null },
        { value: { tools: { weather: { member: true, spec: { description: "The weather" } } } } },
        {
          value: [
            { role: "user", parts: [{ type: "text", text: "hello" }] },
            { role: "assistant", parts: [{ type: "text", text: "You said: hello" }] },
            { role: "user", parts: [{ type: "text", text: "as it was given" }] },
          ],
        },
      ]);
      expect((await session.view()).config.instructions).toBe("");
    });

    test("are refused with what is wrong with the call", async () => {
      const session = await troupe.session("own/wrong");
      const wrong: readonly Call[] = [
        ["snapshotSession"],
        ["snapshotSession", 7],
        ["setToolsAvailability", "own/wrong", "weather", "off"],
        ["setToolMembership", "own/wrong", ["weather"], "yes"],
        ["emitTraceEvent", {}, {}],
        ["emitTraceEvent", "context", { name: "n" }],
        // The host could not write these down as JSON.
        ["emitTraceEvent", {}, { name: "n", payload: 1n }],
        ["emitTraceEvent", { m: new Map() }, { name: "n" }],
        ["startTurn", "own/wrong", 7],
        ["awaitTurn", null],
        ["directCompletion", { messages: [{ role: "user", text: "hi" }] }, " "],
      ];
      expect(await ask(session, ...wrong)).toEqual(wrong.map(() => ({ error: "invalid_host_call" })));
      expect(await askOne(session, "appendSessionNodes", "own/wrong", { nodes: [{ kind: "message" }] })).toEqual({
        error: "invalid_nodes",
      });
      expect(await askOne(session, "setToolAvailability", "own/wrong", "weather", "sometimes")).toEqual({
        error: "tool_state_invalid",
      });
    });
  });

  describe("the state of tools", () => {
    test("changed in a turn counts from the next model call on and is stored with the turn", async () => {
      const session = await troupe.session("tools/turn");
      const result = await session.turn(
        told(
          {
            call: "ask_host",
            args: { calls: [["setToolMembership", "tools/turn", ["weather"], false], ["snapshotCurrent"]] },
          },
          { call: "weather" },
          { say: "done" },
        ),
      );
      expect(result.toolCalls.map(({ output }) => output)).toEqual([
        {
          status: "success",
          value: [{ value: 2 }, { value: expect.objectContaining({ toolGeneration: 2, revision: 0 }) }],
        },
        { status: "failure", failure: expect.objectContaining({ code: "tool_unavailable" }) },
      ]);
      expect(result.revision).toBe(1);
      await session.close();
      const again = await troupe.session("tools/turn");
      expect((await again.surface()).tools.map(({ name }) => name)).toEqual(["ask_host"]);
    });

    test("changed between turns is stored before it is answered, also of a session that had no turn", async () => {
      const session = await troupe.session("tools/between");
      expect(await askOne(session, "setToolAvailability", "tools/between", "weather", "searchable")).toEqual({
        value: 2,
      });
      expect(await session.view()).toMatchObject({ toolGeneration: 2, components: { tools: expect.any(String) } });
      expect(await session.turn(told({ call: "weather" }))).toMatchObject({
        toolCalls: [{ output: { failure: { code: "tool_unavailable" } } }],
      });
      expect(await askOne(session, "setToolsAvailability", "tools/between", ["weather", "ask_host"], null)).toEqual({
        value: 3,
      });
      expect(await session.turn(told({ call: "weather" }))).toMatchObject({
        toolCalls: [{ output: { value: "sunny" } }],
      });
    });

    test("applied over somebody else's change is refused as stale; one unknown name applies nothing", async () => {
      const session = await troupe.session("tools/stale");
      const { value: state } = await askOne(session, "toolState", "tools/stale");
      const answers = await ask(
        session,
        ["applyToolState", "tools/stale", state],
        ["applyToolState", "tools/stale", state],
        ["setToolMembership", "tools/stale", ["weather", "nothing"], false],
        ["setToolsAvailability", "tools/stale", ["weather", "nothing"], "off"],
        ["toolState", "tools/stale"],
      );
      expect(answers).toEqual([
        { value: 2 },
        { error: "tool_state_stale" },
        { error: "tool_unknown" },
        { error: "tool_unknown" },
        { value: { ...(state as object), generation: 2 } },
      ]);
    });
  });

  describe("about other sessions", () => {
    test("reach descendants and created sessions; ancestors, siblings, strangers and ids nobody knows are not visible", async () => {
      const parent = await troupe.session("family");
      const child = await parent.fork({ id: "family/child" });
      await child.fork({ id: "family/grandchild" });
      await parent.fork({ id: "family/sibling" });
      await troupe.session("stranger");
      await (await troupe.session("stranger")).turn("hi");
      const seen = (id: string): Call => ["snapshotSession", id];
      const view = (sessionId: string, parentSessionId: string | null) => ({
        value: expect.objectContaining({ sessionId, parentSessionId }),
      });
      const hidden = { error: "session_not_visible" };
      expect(
        await ask(parent, seen("family/child"), seen("family/grandchild"), seen("stranger"), seen("no such session")),
      ).toEqual([view("family/child", "family"), view("family/grandchild", "family/child"), hidden, hidden]);
      expect(await ask(child, seen("family/grandchild"), seen("family"), seen("family/sibling"))).toEqual([
        view("family/grandchild", "family/child"),
        hidden,
        hidden,
      ]);
      expect(
        await ask(parent, ["createSession", { sessionId: "family/root", relation: "root" }], seen("family/root")),
      ).toEqual([view("family/root", null), view("family/root", null)]);
      expect(await ask(child, seen("family/root"))).toEqual([hidden]);
    });

    test("a session that was parked still reaches a session it created as nobody's child", async () => {
      const parent = await troupe.session("maker");
      await ask(parent, ["createSession", { sessionId: "made", relation: "root" }]);
      await parent.park();
      const view = { value: expect.objectContaining({ sessionId: "made", parentSessionId: null }) };
      expect(await ask(parent, ["snapshotSession", "made"])).toEqual([view]);
    });

    test.each([
      ["snapshotSession"],
      ["readMessages"],
      ["toolCatalog"],
      ["toolState"],
      ["applyToolState"],
      ["setToolsAvailability"],
      ["setToolAvailability"],
      ["setToolMembership"],
      ["takeFirstTurnInput"],
      ["closeSession"],
      ["startTurn"],
      ["startTurnStream"],
      ["appendSessionNodes"],
    ])("%s is refused for a session that is not visible", async (method) => {
      await (await troupe.session("stranger")).turn("hi");
      const session = await troupe.session("curious");
      expect(await askOne(session, method, "stranger", "hi")).toEqual({ error: "session_not_visible" });
    });

    test("are served where that session is, in the middle of both sessions' turns", async () => {
      const parent = await troupe.session("reads");
      const child = await parent.fork({ id: "reads/child" });
      await child.turn("hello");
      const running = child.turn(told({ hang: true }));
      for await (const { type } of running) if (type === "model_call_started") break;
      const answers = await askInTurn(
        parent,
        ["snapshotSession", "reads/child"],
        ["readMessages", "reads/child", { from: 1, to: 2 }],
        ["toolCatalog", "reads/child"],
        ["setToolMembership", "reads/child", ["weather"], false],
        ["toolState", "reads/child"],
      );
      running.cancel();
      expect(answers[0]).toMatchObject({ value: { running: true, turnIndex: 1, messageCount: 3 } });
      expect(answers[1]).toMatchObject({ value: [{ role: "assistant", parts: [{ text: "You said: hello" }] }] });
      expect(named(answers[2])).toEqual(["ask_host", "weather"]);
      expect(answers[3]).toEqual({ value: 2 });
      expect(answers[4]).toMatchObject({ value: { generation: 2, tools: { weather: { member: false } } } });
      expect((await child.info()).threadId).not.toBe((await parent.info()).threadId);
      await running;
      expect((await child.surface()).tools.map(({ name }) => name)).toEqual(["ask_host"]);
      expect((await parent.surface()).tools.map(({ name }) => name)).toEqual(["ask_host", "weather"]);
    });
  });

  describe("nodes appended to a session", () => {
    const note = (text: string) => ({ kind: "message", message: { role: "user", text } });
    const record = (body: unknown) => ({ kind: "plugin", pluginType: "test.record", body });

    // §15.77
    test("go behind the current leaf when the required ancestor is on the path, and nowhere when it is not", async () => {
      const session = await troupe.session("graph");
      await session.turn("one");
      await session.turn("two");
      const { revision } = await session.view();
      const append = (nodes: unknown[], requiresAncestorNodeId?: string): Call => [
        "appendSessionNodes",
        "graph",
        { nodes, requiresAncestorNodeId },
      ];
      expect(await askOne(session, ...append([note("stale")], "graph@9.0"))).toEqual({
        value: { status: "stale_branch", currentLeafNodeId: "graph@2.1", requiredNodeId: "graph@9.0" },
      });
      // Storing the state of the plugin that was asked is all that happened.
      expect(await session.view()).toMatchObject({ leafNodeId: "graph@2.1", messageCount: 4 });
      const { revision: before } = await session.view();
      expect(before - revision).toBeLessThanOrEqual(1);
      const appended = await askOne(session, ...append([note("a"), record({ n: 1 }), note("b")], "graph@1.0"));
      const at = before + 1;
      expect(appended).toEqual({
        value: {
          status: "appended",
          nodeIds: [`graph@${at}.0`, `graph@${at}.1`, `graph@${at}.2`],
          leafNodeId: `graph@${at}.2`,
        },
      });
      expect(await session.view()).toMatchObject({ revision: at, leafNodeId: `graph@${at}.2`, messageCount: 6 });
      // A record is on the path as well.
      expect(await askOne(session, ...append([], `graph@${at}.1`))).toMatchObject({ value: { status: "appended" } });
    });

    test("are read by the model when they are messages, never when they are records, also after reopening", async () => {
      const session = await troupe.session("graph/model");
      await session.turn("one");
      await ask(session, [
        "appendSessionNodes",
        "graph/model",
        { nodes: [note("appended"), record("secret"), { kind: "protocol_event", event: { secret: true } }] },
      ]);
      const conversation = [
        ["user", "one"],
        ["assistant", "You said: one"],
        ["user", "appended"],
      ];
      const input = told({ say: "@conversation" });
      const first = await session.turn(input);
      expect(JSON.parse(first.text)).toEqual([...conversation, ["user", input]]);
      await session.close();
      const again = await (await troupe.session("graph/model")).turn(input);
      expect(JSON.parse(again.text)).toEqual([
        ...conversation,
        ["user", input],
        ["assistant", first.text],
        ["user", input],
      ]);
      const [messages] = await ask(await troupe.session("graph/model"), [
        "readMessages",
        "graph/model",
        { from: 2, to: 3 },
      ]);
      expect(messages).toMatchObject({
        value: [{ role: "user", origin: { kind: "plugin", pluginId: "test.asks-host" } }],
      });
    });

    test("in the middle of a turn are stored at once, and the turn's own messages follow them", async () => {
      const session = await troupe.session("graph/turn");
      const result = await session.turn(
        told(
          {
            call: "ask_host",
            args: { calls: [["appendSessionNodes", "graph/turn", { nodes: [note("first")] }], ["snapshotCurrent"]] },
          },
          { say: "@conversation" },
        ),
      );
      expect(result.toolCalls[0]?.output).toMatchObject({
        value: [{ value: { leafNodeId: "graph/turn@1.0" } }, { value: { revision: 1, messageCount: 3 } }],
      });
      const roles = (text: string) => (JSON.parse(text) as [string, string][]).map(([role]) => role);
      expect(JSON.parse(result.text)[0]).toEqual(["user", "first"]);
      expect(roles(result.text)).toEqual(["user", "user", "assistant", "tool"]);
      expect(await session.view()).toMatchObject({ revision: 2, messageCount: 5, leafNodeId: "graph/turn@2.3" });
      await session.close();
      const again = await (await troupe.session("graph/turn")).turn(told({ say: "@conversation" }));
      expect(roles(again.text)).toEqual(["user", "user", "assistant", "tool", "assistant", "user"]);
    });

    test("can go to a descendant, running or not", async () => {
      const parent = await troupe.session("graph/parent");
      const child = await parent.fork({ id: "graph/child" });
      const running = child.turn(told({ hang: true }));
      for await (const { type } of running) if (type === "model_call_started") break;
      const append: Call = ["appendSessionNodes", "graph/child", { nodes: [note("from above")] }];
      expect(await askOne(parent, ...append)).toMatchObject({ value: { leafNodeId: "graph/child@2.0" } });
      running.cancel();
      await running;
      expect(await askOne(parent, ...append)).toMatchObject({ value: { leafNodeId: "graph/child@4.0" } });
      expect((await child.view()).messageCount).toBe(3);
      expect((await parent.view()).messageCount).toBe(0);
    });
  });

  test("a trace is the plugin's, and always of the own session", async () => {
    const session = await troupe.session("traced");
    await askInTurn(session, [
      "emitTraceEvent",
      { sessionId: "forged", runId: "r" },
      { name: "seen", payload: { n: 1 } },
    ]);
    await ask(session, ["emitTraceEvent", undefined, { name: "bare" }]);
    await until("both have arrived", () => traces.length === 2);
    expect(traces).toEqual([
      { name: "plugin.test.asks-host.seen", payload: { n: 1 }, context: { sessionId: "traced", runId: "r" } },
      { name: "plugin.test.asks-host.bare", payload: null, context: { sessionId: "traced" } },
    ]);
  });

  test("an input is said into the running turn, once under one id, or else begins the next", async () => {
    const session = await troupe.session("injected");
    const inject = (input: object): Call => ["injectTurnInput", "injected", input];
    const again = { id: "k", text: "and this" };
    expect(
      await askInTurn(session, inject(again), inject(again), inject({ text: 7 }), inject({ ...again, text: "no" })),
    ).toEqual([{}, {}, { error: "invalid_host_call" }, { error: "input_key_conflict" }]);
    const said = async () =>
      (await session.messages()).flatMap(({ origin, parts }) =>
        origin?.kind === "turn_input" && parts[0]?.type === "text" ? [parts[0].text] : [],
      );
    expect((await said()).slice(1)).toEqual(["and this"]);
    expect(await ask(session, inject({ text: told({ say: "later" }) }))).toEqual([{}]);
    await until("the next turn has run", async () => (await session.info()).turns === 2);
    expect((await said()).slice(2)).toEqual([told({ say: "later" })]);
    expect(await session.inputs()).toEqual([]);
  });

  // §15.75
  test("work that lives elsewhere is registered, goes on, ends and is listed; what is not there cannot be spoken of", async () => {
    const session = await troupe.session("tasks");
    const own = "tasks";
    const id = "test.asks-host:k";
    const table: readonly (readonly [Call, unknown])[] = [
      [["listBackgroundTasks"], { value: [] }],
      [["registerBackgroundTask", { key: "k", label: "Tail" }], { value: { id, state: "running", sessionId: own } }],
      [["transitionBackgroundTaskLiveState", own, id, "idle"], {}],
      [["listBackgroundTasks", own], { value: [{ id, state: "idle", label: "Tail" }] }],
      [["validateAsyncHandlesVisible", [id]], {}],
      [["completeBackgroundTask", id, { state: "completed", result: 7 }], {}],
      [["validateAsyncHandlesVisible", own, [id]], { error: "task_unknown" }],
      [["cancelBackgroundTask", id], { value: { id, state: "completed", result: 7 } }],
      [["unregisterBackgroundTask", own, id], {}],
      [["cancelBackgroundTask", own, id], { error: "task_unknown" }],
      [["cancelManagedTask", id], {}],
      [["completeBackgroundTask", id, "completed"], { error: "task_unknown" }],
      [["registerBackgroundTask", { key: "k", kinds: 1 }], { error: "invalid_task" }],
      [["registerBackgroundTask", { key: "k" }], { value: { id } }],
      [["cancelUnreferencedAsyncHandles", [id]], { value: [] }],
      [["cancelAllBackgroundTasks"], { value: [{ id, state: "cancelled" }] }],
      [["awaitHiddenTasks"], {}],
      [["listBackgroundTasks", "nobody's"], { error: "session_not_visible" }],
      [["transferAsyncHandles", "nobody's", [id]], { error: "session_not_visible" }],
    ];
    expect(await ask(session, ...table.map(([call]) => call))).toMatchObject(table.map(([, answer]) => answer));
    expect(await session.tasks()).toMatchObject([{ id, state: "cancelled" }]);
  });

  test("a host object that is kept is of no use once its call is over, nor is one of a turn that was cancelled", async () => {
    const session = await troupe.session("kept");
    await ask(session, ["@keep", `${tier}:command`]);
    const late = (name: string): Call => ["@kept", `${tier}:${name}`, "snapshotCurrent"];
    expect(await askInTurn(session, ["@keep", `${tier}:tool`], late("command"))).toEqual([
      { value: null },
      { value: { error: "host_call_over" } },
    ]);
    const cancelled = turnThatAsks(session, ["@keep", `${tier}:cancelled`], ["@never"]);
    for await (const { type } of cancelled) if (type === "tool_call_started") break;
    // The tool has begun once this query, behind it on the same thread, is answered.
    await session.query("host.read", { calls: [] });
    cancelled.cancel();
    await cancelled;
    expect(await ask(session, late("tool"), late("cancelled"))).toEqual([
      { value: { error: "host_call_over" } },
      { value: { error: "aborted" } },
    ]);
  });
});

const SNAPSHOT = ["readMessages", "snapshotCurrent", "snapshotSession"];
const LIFECYCLE = ["closeSession", "createSession", "takeFirstTurnInput"];
const TURN = ["awaitTurn", "cancelTurn", "startTurn", "startTurnStream", "startTurnTask"];
const TOOL_STATE = ["applyToolState", "setToolAvailability", "setToolMembership", "setToolsAvailability", "toolState"];
const DIRECT = ["directCompletion", "directLlmCompletion"];
const GRAPH = ["appendSessionNodes"];
const TRACE = ["emitTraceEvent"];
const MONITOR = ["monitorSnapshot", "startMonitor", "stopMonitor", "takeMonitorUpdates"];
const TASK = [
  "awaitHiddenTasks",
  "cancelAllBackgroundTasks",
  "cancelBackgroundTask",
  "cancelManagedTask",
  "cancelUnreferencedAsyncHandles",
  "completeBackgroundTask",
  "injectTurnInput",
  "listBackgroundTasks",
  "registerBackgroundTask",
  "spawnHiddenTask",
  "spawnManagedTask",
  "transferAsyncHandles",
  "transitionBackgroundTaskLiveState",
  "unregisterBackgroundTask",
  "validateAsyncHandlesVisible",
];
const CATALOG = ["toolCatalog"];
const HISTORY = [...SNAPSHOT, ...LIFECYCLE, ...TURN, ...TASK, ...GRAPH, ...DIRECT];
const ALL = [...HISTORY, ...CATALOG, ...TOOL_STATE, ...MONITOR, ...TRACE, "processes", "triggers"];

/** The composites of the seed: what the hooks of each kind are given. */
const COMPOSITES: Readonly<Record<string, readonly string[]>> = {
  turnContextTransform: HISTORY,
  beforeTurn: [...SNAPSHOT, ...TOOL_STATE, ...LIFECYCLE, ...TRACE],
  toolCatalogContributor: [],
  promptContributor: [...SNAPSHOT, ...CATALOG, ...TASK, ...DIRECT],
  assistantStream: [],
  assistantResponse: [],
  proseProjector: [],
  streamFinished: [],
  beforeToolCall: ALL,
  afterToolCall: ALL,
  toolResultProjector: [],
  checkpoint: [...LIFECYCLE, ...TRACE],
  afterTurn: [...LIFECYCLE, ...TRACE],
  turnFinalized: [],
  turnPersisted: HISTORY,
  sessionRestored: [],
  sessionConfigMutator: TASK,
  sessionConfigChanged: TASK,
  contextCompactor: HISTORY,
};

/** One call of every interface, about the session it is made in. */
const OF_EACH: readonly (readonly [call: Call, interfaceOf: readonly string[], value: unknown])[] = [
  [["snapshotCurrent"], SNAPSHOT, expect.objectContaining({ sessionId: "s" })],
  [["readMessages", "@own", { to: 0 }], SNAPSHOT, []],
  [["toolCatalog", "@own"], CATALOG, expect.any(Array)],
  [["toolState", "@own"], TOOL_STATE, expect.objectContaining({ generation: 1 })],
  [["takeFirstTurnInput", "@own"], LIFECYCLE, null],
  [["closeSession", "a session nobody knows"], LIFECYCLE, undefined],
  [["cancelUnreferencedAsyncHandles", "@own", []], TASK, []],
  [["appendSessionNodes", "@own", { nodes: [] }], GRAPH, expect.objectContaining({ status: "appended" })],
  [
    ["directCompletion", { messages: [{ role: "user", text: "hi" }] }, "test"],
    DIRECT,
    expect.objectContaining({ text: "hi" }),
  ],
  [["emitTraceEvent", {}, { name: "n" }], TRACE, undefined],
];

describe.each(["worker", "inline"] as const)("what hooks of a plugin in the tier %s are given", (tier) => {
  const startAsking = (options: object) =>
    startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("asks-host-in-hooks"), options, tier }],
      model: scriptedModel([
        { text: "streamed", toolCalls: [{ tool: "weather", args: {} }] },
        { text: "whole", stream: false },
      ]),
    });

  test("is each kind's composite; every interface answers in the middle of the turn, the others are not there", async () => {
    const troupe = await startAsking({ everywhere: [["@methods"], ...OF_EACH.map(([call]) => call)] });
    const session = await troupe.session("s");
    expect((await session.turn("hi")).issues).toEqual([]);
    await session.configure({ instructions: "Be brief." });
    await session.compact();
    const asked = (await session.query("host.asked")) as Record<string, Answer[]>;
    const expected = Object.entries(COMPOSITES).map(([name, methods]) => [
      name,
      [
        { value: [...methods].sort() },
        ...OF_EACH.map(([[method], , value]) => (methods.includes(method) ? { value } : { missing: true })),
      ],
    ]);
    expect(asked).toEqual(Object.fromEntries(expected));
  });

  test("does not count a turn twice once it is stored, and what is spent then is stored at once", async () => {
    const troupe = await startAsking({
      turnPersisted: [
        ["directCompletion", { messages: [{ role: "user", text: "12345678" }] }, "late"],
        ["snapshotCurrent"],
        ["readMessages", "@own"],
      ],
    });
    const session = await troupe.session("s");
    const activities = await collect(session.turn("hi"));
    const asked = (await session.query("host.asked")) as Record<string, Answer[]>;
    const [, view, messages] = asked.turnPersisted as Answer[];
    expect(view).toMatchObject({
      value: { running: true, turnIndex: 1, messageCount: 4, revision: 2 },
    });
    expect(spentBeside(valueIn<SessionView>(view))).toEqual({ late: usage(2, 2) });
    expect(messages?.value).toHaveLength(4);
    expect(valueIn<{ usage: unknown }>(view).usage).toEqual((await session.view()).usage);
    expect(untimed(only(activities, "usage"))).toEqual([
      { type: "usage", source: "late", model: "scripted", usage: usage(2, 2) },
    ]);
  });

  test("is over with the hook: a later hook that uses it is refused", async () => {
    const troupe = await startAsking({
      beforeTurn: [["@keep", `${tier}:before`]],
      assistantStream: [["@kept", `${tier}:before`, "snapshotCurrent"]],
    });
    const session = await troupe.session("s");
    await session.turn("hi");
    expect(await session.query("host.asked")).toEqual({
      beforeTurn: [{ value: null }],
      assistantStream: [{ value: { error: "host_call_over" } }],
    });
  });
});

test("a plugin that forges its messages gets no further: the session worker knows what a call was granted", async () => {
  const forgeries = [
    { method: "directCompletion", args: [{ messages: [{ role: "user", text: "hi" }] }, "forged"] },
    { method: "startTurn", args: ["s", "hi"] },
    { method: "turnEvents", args: ["s#1"] },
    { method: "appendSessionNodes", args: ["s", { nodes: [] }] },
    { method: "toolCatalog", args: ["s"] },
    { method: "listBackgroundTasks", args: ["s"] },
    { method: "monitorSnapshot", args: ["s"] },
    { method: "constructor", args: [] },
    { method: "__proto__", args: [] },
    { call: 1_000_000 },
    { call: "1" },
    // Granted to a beforeTurn hook: the forger is not cut off, it only cannot do more than it may.
    { method: "takeFirstTurnInput", args: ["s"] },
  ];
  const troupe = await startTroupe({
    sessionWorkers: 1,
    plugins: [{ module: plugin("forges"), options: { forgeries } }],
  });
  const session = await troupe.session("s");
  expect((await session.turn("hi")).outcome.type).toBe("finished");
  const refused = { error: "host_not_granted" };
  const over = { error: "host_call_over" };
  expect(await session.query("forges.answers")).toEqual([
    ...Array.from({ length: 9 }, () => refused),
    over,
    over,
    { value: null },
  ]);
});
