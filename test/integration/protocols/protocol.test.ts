import {
  createTroupe,
  finishTurn,
  type Session,
  scriptedModel,
  switchFrame,
  type TroupeOptions,
  type Turn,
} from "troupe";
import { describe, expect, test } from "vitest";
import { openLmdbReader, readHistory } from "../../../dist/src/store/index.js";
import { decode } from "../../../dist/src/wire/index.js";
import {
  collect,
  EMPTY_OBJECT,
  fixture,
  plugin,
  RESIDENT,
  refusalOf,
  startTroupe,
  tempFolder,
  until,
} from "../../support/runtime.js";

const echoTool = {
  description: "Says its argument",
  inputSchema: { type: "object", properties: { value: { type: "string" } }, required: ["value"] },
  execute: (args: unknown) => (args as { value: string }).value,
} as const;

/** As the model writes code. */
const cell = (...lines: string[]) => `\`\`\`calc\n${lines.join("\n")}\n\`\`\``;

/** Says the turn's input, so that a turn runs the cell it is asked; then what it was asked, as JSON. */
const showing = fixture("models/says-input-then-prompt.mjs");
/** The same, but then it says "done". */
const running = scriptedModel({ turns: [[{ text: "{input}" }, { text: "done" }]] });

const withCalc = (options: TroupeOptions = {}, calc: object = {}): TroupeOptions => ({
  sessionWorkers: 1,
  protocol: { module: plugin("calc"), options: calc },
  tools: { echo: echoTool },
  model: running,
  ...options,
});
const startCalc = (options: TroupeOptions = {}, calc: object = {}) => startTroupe(withCalc(options, calc));

/** What the model read after its code ran. */
const readBack = async (turn: Turn): Promise<string> => JSON.parse((await turn).text).conversation.at(-1)[1];

/** What the protocol was called with, for a session. */
const logOf = (session: Session, of = session.id) => session.query<unknown[]>("calc.log", { of });
const OPENING = /^(initializeSession|restoreSession|restoreExecutionState|materialize)/;
/** The last of it that was not the session's opening. */
const lastOf = async (session: Session) => (await logOf(session)).findLast((entry) => !OPENING.test(String(entry)));

describe("a code protocol", () => {
  test("shows the model a prompt and no tools, runs its fenced blocks, and lets it read what they printed", async () => {
    const troupe = await startCalc({ model: showing, instructions: "Be exact." });
    const session = await troupe.session("s");
    const result = await session.turn(cell("x = 1 + 2", "print x", "print x * 2"));
    expect(JSON.parse(result.text)).toEqual({
      system:
        "Be exact.\n\n## Execution\n\nCalculate in calc blocks, with 2 digits.\n\n## Environment\n\nIn code: echo",
      conversation: [
        ["user", "```calc\nx = 1 + 2\nprint x\nprint x * 2\n```"],
        ["assistant", "```calc\nx = 1 + 2\nprint x\nprint x * 2\n```"],
        ["user", "3.00\n6.00"],
      ],
      tools: [],
    });
    expect([result.outcome.type, result.modelCalls]).toEqual(["finished", 2]);
    expect(await logOf(session)).toContain("executeCode calc true");
    const [next, ...others] = JSON.parse((await session.turn(cell("x = x"))).text).conversation.slice(4);
    expect(next).toEqual(["user", "```calc\nx = x\n```"]);
    expect(others.at(-1)).toEqual(["user", "[The code printed nothing]"]);
  });

  test("an answer without a block is the end of the turn", async () => {
    const troupe = await startCalc();
    const result = await (await troupe.session("s")).turn("just words");
    expect(result.outcome).toEqual({ type: "finished", text: "just words" });
    expect(result.modelCalls).toBe(1);
  });

  test("variables last from cell to cell and from turn to turn, and code can end the turn with a value", async () => {
    const turns = [
      [{ text: cell("x = 2") }, { text: cell("y = x * 3", "print y", "finish y") }],
      [{ text: cell("finish x + y") }],
    ];
    const troupe = await startCalc({ model: scriptedModel({ turns }) });
    const session = await troupe.session("s");
    const first = await session.turn("six");
    expect(first.outcome).toEqual({ type: "finished", text: "6", value: 6 });
    expect([first.text, first.modelCalls]).toEqual(["6", 2]);
    expect((await session.turn("eight")).outcome).toEqual({ type: "finished", text: "8", value: 8 });
  });

  test("the model reads what went wrong in its code, after what was printed before, and goes on", async () => {
    const troupe = await startCalc({ model: showing });
    const session = await troupe.session("s");
    expect(await readBack(session.turn(cell("print 1", "print nobody", "print 2")))).toBe(
      "1.00\n[Code failed]\nnobody is not defined",
    );
    expect(await readBack(session.turn(cell("garbage")))).toBe(
      "[Code failed]\nThe protocol of plugin test.calc cannot be followed: its code executor returned no result.",
    );
  });

  test("without an executor the model reads that code cannot be run, and the turn goes on", async () => {
    const troupe = await startCalc({ model: showing }, { without: ["codeExecutor"] });
    const result = (await troupe.session("s")).turn(cell("print 1"));
    expect(await readBack(result)).toBe("[Code failed]\nCode execution is not available in this session.");
    expect((await result).outcome.type).toBe("finished");
  });

  test("an empty answer after code is the end of the turn; an empty one at once is the provider's fault", async () => {
    const turns = [[{ text: cell("x = 1") }, { text: "" }], [{ text: "" }]];
    const troupe = await startCalc({ model: scriptedModel({ turns }) });
    const session = await troupe.session("s");
    expect((await session.turn("compute")).outcome).toEqual({ type: "finished", text: "" });
    expect((await session.turn("say nothing")).outcome).toMatchObject({
      reason: "provider_error",
      code: "empty_response",
    });
  });

  test("the step budget holds for code as for tools", async () => {
    const steps = [{ text: cell("n = 1") }, { text: cell("n = n + 1") }, { text: cell("n = n + 1") }];
    const troupe = await startCalc({ model: scriptedModel(steps), maxSteps: 2 });
    const { outcome, modelCalls } = await (await troupe.session("s")).turn("count");
    expect(outcome).toMatchObject({ type: "stopped", reason: "max_turns" });
    expect(modelCalls).toBe(2);
  });

  test("a turn is cancelled while its code runs, also when the code does not listen, and the next one works", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    const turn = session.turn(cell("x = 1", "hang"));
    for await (const activity of turn) if (activity.type === "model_call_finished") turn.cancel("enough");
    expect((await turn).outcome).toMatchObject({ reason: "cancelled", message: "enough" });
    expect((await session.turn(cell("finish x"))).outcome).toMatchObject({ value: 1 });
  });
});

describe.each(["worker", "inline"] as const)("tools called from code, with a plugin in the tier %s", (tier) => {
  const withHooks = (does: Record<string, string>, options: TroupeOptions = {}) =>
    startCalc({ plugins: [{ module: plugin("scriptable"), tier, options: does }], model: showing, ...options });

  test("go through the same hooks and records as the model's own, and code gets their result", async () => {
    const troupe = await withHooks({ toolResultProjector: "project" });
    const turn = (await troupe.session("s")).turn(cell('call echo {"value":"hello"}', 'call echo {"value":"again"}'));
    const activities = await collect(turn);
    expect(await readBack(turn)).toBe("hello\nagain");
    const { toolCalls } = await turn;
    expect(toolCalls.map(({ callId, toolName, args, output }) => [callId, toolName, args, output])).toEqual([
      [
        expect.stringMatching(/^code-[0-9a-f]{32}-1-1$/),
        "echo",
        { value: "hello" },
        { status: "success", value: "hello" },
      ],
      [
        expect.stringMatching(/^code-[0-9a-f]{32}-1-2$/),
        "echo",
        { value: "again" },
        { status: "success", value: "again" },
      ],
    ]);
    expect(activities.filter(({ type }) => type.startsWith("tool_call")).map(({ type }) => type)).toEqual([
      "tool_call_started",
      "tool_call_finished",
      "tool_call_started",
      "tool_call_finished",
    ]);
    const { hooks } = await troupe.stats();
    expect(hooks["plugin_hook.before_tool_call.test.scriptable"]?.count).toBe(2);
    expect(hooks["plugin_hook.after_tool_call.test.scriptable"]?.count).toBe(2);
    expect(hooks["plugin_hook.tool_result_projector.test.scriptable"]?.count).toBe(2);
  });

  test("are denied and changed by hooks, and messages of hooks follow what the code printed", async () => {
    const denied = await withHooks({ beforeToolCall: "deny" });
    const deniedTurn = (await denied.session("s")).turn(cell('call echo {"value":"hello"}', "print 1"));
    expect(await readBack(deniedTurn)).toBe("forbidden: Not allowed.\n1.00");
    const changed = await withHooks({ beforeToolCall: "replaceArgs", afterToolCall: "enqueueUser" });
    const turn = await (await changed.session("s")).turn(cell('call echo {"value":"hello"}'));
    expect(JSON.parse(turn.text).conversation.slice(2)).toEqual([
      ["user", "replaced"],
      ["user", "a word from the plugin"],
    ]);
    expect(turn.toolCalls.map(({ args }) => args)).toEqual([{ value: "replaced" }]);
  });

  test("come from the same catalog: what was taken out of it, is hidden or unknown is refused, and so are bad arguments", async () => {
    const troupe = await withHooks({ toolCatalogContributor: "removeEcho" });
    const session = await troupe.session("s");
    const gone = "tool_unavailable: The tool echo is not available to this session now.";
    expect(await readBack(session.turn(cell('call echo {"value":"x"}')))).toBe(gone);
    const open = await withHooks({});
    const parent = await open.session("parent");
    expect(await readBack(parent.turn(cell("call nobody")))).toBe("tool_unavailable: There is no tool called nobody.");
    expect(await readBack(parent.turn(cell("call echo")))).toContain("invalid_tool_args: ");
    const child = await parent.fork({ id: "child", authority: { hiddenTools: ["echo"] } });
    expect(await readBack(child.turn(cell('call echo {"value":"x"}')))).toContain("tool_unavailable: ");
  });

  test("are the turn's also when the code does not wait for them, and can no longer be called when it has ended", async () => {
    const steps = [
      { text: cell("keep", 'start echo {"value":"alone"}') },
      { text: cell('late echo {"value":"late"}', "finish 1") },
    ];
    const ran: string[] = [];
    const execute = (args: unknown) => {
      ran.push((args as { value: string }).value);
      return "said";
    };
    const troupe = await withHooks({}, { model: scriptedModel(steps), tools: { echo: { ...echoTool, execute } } });
    const { toolCalls, outcome } = await (await troupe.session("s")).turn("hi");
    expect(outcome).toMatchObject({ value: 1 });
    expect(toolCalls.map(({ args, output }) => [args, output.status])).toEqual([[{ value: "alone" }, "success"]]);
    expect(ran).toEqual(["alone"]);
  });

  test("that abort the turn end it and the code with it: no further tool is called, and the model is not asked again", async () => {
    const ran: string[] = [];
    const tools = { echo: { ...echoTool, execute: (args: unknown) => ran.push((args as { value: string }).value) } };
    const troupe = await withHooks({ beforeToolCall: "abort" }, { tools });
    const session = await troupe.session("s");
    const result = await session.turn(cell("x = 1", 'call echo {"value":"a"}', 'call echo {"value":"b"}', "hang"));
    expect(result.outcome).toEqual({
      type: "stopped",
      reason: "plugin_abort",
      code: "stop_it",
      message: "The plugin says stop.",
    });
    expect([result.modelCalls, result.toolCalls.length, ran]).toEqual([1, 1, []]);
    expect((await troupe.stats()).hooks["plugin_hook.before_tool_call.test.scriptable"]?.count).toBe(1);
    // What the code did before counts.
    expect((await session.turn(cell("finish x"))).outcome).toMatchObject({ value: 1 });
  });

  test("that end the turn do so when the code is through, whatever the code itself ends with", async () => {
    const leave = { ...echoTool, execute: () => switchFrame({ frameId: "second", task: "Go on." }) };
    const done = { ...echoTool, execute: () => finishTurn({ sum: 3 }) };
    const session = await (await withHooks({}, { tools: { leave, done } })).session("s");
    const call = (tool: string) => cell("x = 1", `call ${tool} {"value":"a"}`, "x = 2", "finish x");
    const finished = await session.turn(call("done"));
    expect(finished.outcome).toEqual({ type: "finished", text: '{"sum":3}', value: { sum: 3 }, toolName: "done" });
    const { before } = await session.turn(call("leave"));
    expect(before?.[0]?.outcome).toEqual({ type: "frame_switch", frameId: "second", task: "Go on." });
    expect((await session.view()).frameId).toBe("second");
    expect((await session.turn(cell("finish x"))).outcome).toMatchObject({ value: 2 });
  });

  test("at once have ids of their own and keep the order they were called in; an abort cancels the others", async () => {
    let release = () => {};
    const gate = new Promise<string>((resolve) => {
      release = () => resolve("slow");
    });
    const tools = {
      slow: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => gate },
      fast: {
        description: "d",
        inputSchema: EMPTY_OBJECT,
        execute: () => {
          release();
          return "fast";
        },
      },
      stuck: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => new Promise(() => {}) },
    };
    const troupe = await withHooks({}, { tools });
    const turn = (await troupe.session("s")).turn(cell("together slow & fast"));
    expect(await readBack(turn)).toBe("slow\nfast");
    expect((await turn).toolCalls.map(({ callId, toolName, completed }) => [callId, toolName, completed])).toEqual([
      [expect.stringMatching(/^code-[0-9a-f]{32}-1-1$/), "slow", 1],
      [expect.stringMatching(/^code-[0-9a-f]{32}-1-2$/), "fast", 0],
    ]);
    const aborting = await withHooks({ afterToolCall: "abort" }, { tools });
    const { outcome, toolCalls } = await (await aborting.session("s")).turn(cell("together stuck & fast"));
    expect(outcome).toMatchObject({ reason: "plugin_abort", code: "stop_it" });
    expect(toolCalls.map(({ toolName, output }) => [toolName, output.status])).toEqual([
      ["stuck", "cancelled"],
      ["fast", "failure"],
    ]);
  });
});

describe("execution state", () => {
  // §15.82
  test("is captured at the commit when it is dirty, and only then", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    let before = (await troupe.stats()).store.records;
    const written = async (code: string) => {
      await session.turn(code);
      const { records } = (await troupe.stats()).store;
      const count = records - before;
      before = records;
      return count;
    };
    // Head and turn, and what materialising made of the protocol's options.
    expect(await written("words")).toBe(3);
    expect(await written(cell("x = 1"))).toBe(3);
    expect(await written(cell("print x"))).toBe(2);
    expect(await written("words")).toBe(2);
    expect(await written(cell("x = 2"))).toBe(3);
    // Dirty, but with the same content as what is stored.
    expect(await written(cell("x = 2"))).toBe(2);
    expect((await logOf(session)).filter((entry) => entry === "snapshotExecutionState")).toHaveLength(3);
  });

  // §15.82
  test("null clears what was stored", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    await session.turn(cell("x = 1"));
    expect(Object.keys((await session.view()).components)).toContain("execution");
    await session.turn(cell("forget"));
    expect(Object.keys((await session.view()).components)).not.toContain("execution");
    await session.close();
    const again = await troupe.session("s");
    expect((await again.turn(cell("finish x"))).outcome).toEqual({ type: "finished", text: "done" });
  });

  // §15.82 turn §8.42: unlike there, the turn is stored all the same
  test("that cannot be captured keeps what was stored, is an issue of the turn, and is captured when it can be", async () => {
    const path = await tempFolder();
    const troupe = await startCalc({ store: { path } });
    const session = await troupe.session("s");
    await session.turn(cell("x = 1"));
    const kept = (await session.view()).components.execution;
    const { issues, outcome } = await session.turn(cell("x = 2", "spoil"));
    expect(issues).toEqual([
      { kind: "plugin", code: "execution_capture_failed", message: "the variables cannot be read" },
    ]);
    expect(outcome).toEqual({ type: "finished", text: "done" });
    expect((await session.view()).components.execution).toBe(kept);
    const { issues: others } = await session.turn(cell("spoil text"));
    expect(others).toMatchObject([
      {
        code: "execution_capture_failed",
        message: expect.stringContaining("snapshotExecutionState: it returned neither"),
      },
    ]);
    expect((await session.view()).components.execution).toBe(kept);
    const next = await session.turn(cell("unspoil"));
    expect(next.issues).toEqual([]);
    expect((await session.view()).components.execution).not.toBe(kept);
    await session.close();
    expect((await (await troupe.session("s")).turn(cell("finish x"))).outcome).toMatchObject({ value: 2 });
  });

  // turn §8.43
  test("is the session's and not the frame's: leaving for another frame keeps it, and so does being refused one", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    await session.turn(cell("x = 7"));
    const kept = (await session.view()).components.execution;
    expect((await session.turn("switch second")).before).toMatchObject([{ outcome: { type: "frame_switch" } }]);
    expect((await session.turn("switch main")).outcome).toMatchObject({ code: "before_llm_call_failed" });
    expect((await session.view()).components.execution).toBe(kept);
    await session.close();
    expect((await (await troupe.session("s")).turn(cell("finish x"))).outcome).toMatchObject({ value: 7 });
  });

  // §15.82
  test("survives a restart on the disk, and a fork goes its own way with it", async () => {
    const path = await tempFolder();
    const first = await createTroupe(withCalc({ store: { path } }));
    await (await first.session("parent")).turn(cell("x = 1"));
    await first.close();
    const second = await createTroupe(withCalc({ ...RESIDENT, store: { path } })); // It is opened once.
    const parent = await second.session("parent");
    expect(await logOf(parent)).toEqual([
      "initializeSession",
      "restoreSession 1 4",
      "restoreExecutionState",
      "materialize root {}",
    ]);
    const child = await parent.fork({ id: "child" });
    expect((await child.turn(cell("x = x + 10", "finish x"))).outcome).toMatchObject({ value: 11 });
    expect((await parent.turn(cell("x = x + 1", "finish x"))).outcome).toMatchObject({ value: 2 });
    await second.close();
    const third = await startCalc({ store: { path } });
    expect((await (await third.session("child")).turn(cell("finish x"))).outcome).toMatchObject({ value: 11 });
    expect((await (await third.session("parent")).turn(cell("finish x"))).outcome).toMatchObject({ value: 2 });
  });

  test("of a turn that was lost with its worker is that of the last stored turn", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    await session.turn(cell("x = 1"));
    const killed = async () => {
      for await (const { type } of session.turn(cell("x = 2", "hang")))
        if (type === "model_call_finished") await troupe.kill({ sessionWorker: 0 });
    };
    expect((await refusalOf(killed())).code).toBe("worker_lost");
    expect((await session.turn(cell("finish x"))).outcome).toMatchObject({ value: 1 });
  });

  test("is not inherited by a session that starts empty or with fresh plugins", async () => {
    const troupe = await startCalc();
    const parent = await troupe.session("parent");
    await parent.turn(cell("x = 1"));
    await parent.command("calc.child", { sessionId: "empty" });
    await parent.command("calc.child", {
      sessionId: "fresh",
      start: { kind: "current_session" },
      pluginSource: "fresh",
    });
    await parent.command("calc.child", { sessionId: "whole", start: { kind: "current_session" } });
    const valueIn = async (id: string) => (await (await troupe.session(id)).turn(cell("finish x"))).outcome;
    expect(await valueIn("empty")).toEqual({ type: "finished", text: "done" });
    expect(await valueIn("fresh")).toEqual({ type: "finished", text: "done" });
    expect(await valueIn("whole")).toMatchObject({ value: 1 });
  });
});

describe("materialising", () => {
  // §15.79
  test("happens for a root, a resumed session and a child, with the right flag and options", async () => {
    const troupe = await startCalc();
    const root = await troupe.session("root", { pluginOptions: { "test.calc": { precision: 4 }, "acme.other": true } });
    expect((await logOf(root)).at(-1)).toBe('materialize root {"test.calc":{"precision":4},"acme.other":true}');
    await root.turn("words");
    await root.close();
    const resumed = await troupe.session("root");
    expect((await logOf(resumed)).at(-1)).toBe("materialize root {}");
    await resumed.command("calc.child", {
      sessionId: "child",
      authority: { pluginOptions: { "test.calc": { precision: 1 } } },
    });
    const child = await troupe.session("child");
    expect((await logOf(child)).at(-1)).toBe('materialize child {"test.calc":{"precision":1}}');
    await child.close();
    expect((await logOf(await troupe.session("child"))).slice(-3)).toEqual([
      "initializeSession",
      "restoreSession 0 0",
      'materialize child {"test.calc":{"precision":1}}',
    ]);
    await child.fork({ id: "grandchild" });
    expect((await logOf(resumed, "grandchild")).at(-1)).toBe('materialize child {"test.calc":{"precision":1}}');
    await resumed.command("calc.child", { sessionId: "other root", relation: "root" });
    expect((await logOf(resumed, "other root")).at(-1)).toBe("materialize root {}");
  });

  test("a child's options are in its first write", async () => {
    const troupe = await startCalc();
    const root = await troupe.session("root");
    await root.turn("words");
    const child = await root.fork({ id: "child", authority: { pluginOptions: { "test.calc": { precision: 1 } } } });
    const stored = async (session: Session) => (await session.view()).components.protocol;
    expect([await stored(child), (await child.info()).revision]).toEqual([expect.any(String), 1]);
    expect(await stored(child)).not.toBe(await stored(root));
  });

  // §15.79
  test("applies what is given over what is kept, and defaults the rest, for a child otherwise than for a root", async () => {
    const troupe = await startCalc({ model: showing });
    const shown = async (session: Session) => readBack(session.turn(cell("print 1")));
    const root = await troupe.session("root");
    expect(await shown(root)).toBe("1.00");
    await root.close();
    const given = await troupe.session("root", { pluginOptions: { "test.calc": { precision: 3 } } });
    expect(await shown(given)).toBe("1.000");
    await given.close();
    // Nothing is given: what was kept stands, not the default.
    const kept = await troupe.session("root");
    expect(await shown(kept)).toBe("1.000");
    await kept.command("calc.child", { sessionId: "child" });
    expect(await shown(await troupe.session("child"))).toBe("1");
    // A fork goes on from its parent's.
    expect(await shown(await kept.fork({ id: "fork" }))).toBe("1.000");
    expect(
      await shown(await kept.fork({ id: "other", authority: { pluginOptions: { "test.calc": { precision: 1 } } } })),
    ).toBe("1.0");
  });

  // §15.79
  test("keeps the options with the session, under a schema version", async () => {
    const path = await tempFolder();
    const troupe = await createTroupe(withCalc({ store: { path } }));
    await (await troupe.session("s", { pluginOptions: { "test.calc": { precision: 5 } } })).turn("words");
    await troupe.close();
    const reader = openLmdbReader(path);
    const hash = reader.head("s")?.components.protocol;
    expect(decode(reader.component(hash as string) as Uint8Array)).toEqual({
      schemaVersion: 1,
      payload: { precision: 5 },
    });
    reader.close();
  });

  // §15.79
  test("with malformed options fails the open of a root, a resumed session and a child, and nothing is written", async () => {
    const troupe = await startCalc();
    const malformed = { "test.calc": { precision: "many" } };
    const before = await troupe.stats();
    const error = await refusalOf(troupe.session("fresh", { pluginOptions: malformed }));
    expect([error.code, error.details]).toEqual([
      "protocol_failed",
      { sessionId: "fresh", method: "configureOnMaterialize" },
    ]);
    expect((error.cause as { code: string }).code).toBe("plugin_options_invalid");
    expect((await troupe.stats()).store).toEqual(before.store);

    const session = await troupe.session("s");
    await session.turn(cell("x = 1"));
    const { store } = await troupe.stats();
    expect((await refusalOf(session.fork({ id: "child", authority: { pluginOptions: malformed } }))).code).toBe(
      "protocol_failed",
    );
    await session.close();
    expect((await refusalOf(troupe.session("s", { pluginOptions: malformed }))).code).toBe("protocol_failed");
    expect((await troupe.stats()).store).toEqual(store);
    expect((await (await troupe.session("s")).turn(cell("finish x"))).outcome).toMatchObject({ value: 1 });
    expect((await (await (await troupe.session("s")).fork({ id: "child" })).info()).turns).toBe(2);
  });

  // §15.79
  test.each([
    ["asynchronous", "it is asynchronous; set the options at once"],
    ["options", "their schema version is missing or no whole number"],
    ["initializeSession", "not today"],
  ])("fails the open when the protocol does it wrong: %s", async (fails, why) => {
    const troupe = await startCalc({}, { fails });
    const error = await refusalOf(troupe.session("s"));
    expect(error.code).toBe("protocol_failed");
    expect(error.message).toContain(why);
    // Nothing was left unhandled that would end the worker.
    expect((await troupe.stats()).workers.map(({ restarts }) => restarts)).toEqual([0]);
  });
});

describe("turn options of a protocol", () => {
  // §15.83
  test("are laid over the session's for one turn, key by key", async () => {
    const troupe = await startCalc({ model: showing });
    const session = await troupe.session("s");
    const shown = (payload: never, input = cell("print 1")) =>
      readBack(session.turn(input, { protocolOptions: { schemaVersion: 1, payload } }));
    expect(await shown({ precision: 1 } as never)).toBe("1.0");
    expect(await shown({ mood: { deep: true } } as never)).toBe("1.00");
    await session.turn("report", { protocolOptions: { schemaVersion: 1, payload: { mood: { deep: true } } } });
    expect(await lastOf(session)).toMatchObject({
      turnOptions: { schemaVersion: 1, payload: { precision: 2, mood: { deep: true } } },
    });
    // What is not an object replaces the session's as a whole.
    await session.turn("report", { protocolOptions: { schemaVersion: 1, payload: 7 } });
    expect(await lastOf(session)).toMatchObject({ turnOptions: { schemaVersion: 1, payload: 7 } });
    expect(await readBack(session.turn(cell("print 1")))).toBe("1.00");
  });

  // §15.83
  test("of no or another schema version are refused with a typed error, and nothing is stored", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    await session.turn("words");
    for (const protocolOptions of [{ payload: {} }, { schemaVersion: "1", payload: {} }, 7, null]) {
      expect(() => session.turn("words", { protocolOptions: protocolOptions as never })).toThrow(
        expect.objectContaining({ code: "protocol_options_invalid" }),
      );
    }
    const error = await refusalOf(session.turn("words", { protocolOptions: { schemaVersion: 2, payload: {} } }));
    expect(error.code).toBe("protocol_options_invalid");
    expect((await session.info()).turns).toBe(1);
    expect((await session.turn("words")).turnIndex).toBe(2);
  });
});

// §15.83
test("a protocol of another schema version cannot open a session of an older one, and leaves it as it is", async () => {
  const path = await tempFolder();
  const store = { path };
  const old = await createTroupe(withCalc({ store }));
  await (await old.session("s")).turn(cell("x = 1"));
  await old.close();
  const newer = await createTroupe(withCalc({ store }, { schema: 2 }));
  const error = await refusalOf(newer.session("s"));
  expect([error.code, (error.cause as { code: string }).code]).toEqual(["protocol_failed", "protocol_options_invalid"]);
  await newer.close();
  const again = await startCalc({ store });
  expect((await (await again.session("s")).turn(cell("finish x"))).outcome).toMatchObject({ value: 1 });
});

describe("extensions of a protocol", () => {
  // §15.80
  test("of a session are refused by a protocol that does not take any", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    expect((await refusalOf(session.extend({ name: "x", value: 1 }))).code).toBe("protocol_extension_refused");
    const standard = await startTroupe({ sessionWorkers: 1 });
    expect((await refusalOf((await standard.session("s")).extend(1))).code).toBe("protocol_extension_refused");
  });

  // §15.80
  test("of a session are accepted by one that does; the code protocol refuses a name it already has", async () => {
    const troupe = await startCalc({}, { extensible: true });
    const session = await troupe.session("s");
    await session.extend({ name: "gravity", value: 10 });
    expect((await session.turn(cell("finish gravity * 2"))).outcome).toMatchObject({ value: 20 });
    // Between turns as well: what the executor has is what forks get and what is stored.
    await session.extend({ name: "speed", value: 3 });
    const child = await session.fork({ id: "child" });
    expect((await child.turn(cell("finish speed"))).outcome).toMatchObject({ value: 3 });
    await session.extend({ name: "mass", value: 4 });
    await session.close();
    expect((await (await troupe.session("s")).turn(cell("finish mass"))).outcome).toMatchObject({ value: 4 });
    const error = await refusalOf(session.extend({ name: "gravity", value: 11 }));
    expect([error.code, error.details.method]).toEqual(["protocol_failed", "applySessionExtension"]);
    expect(error.message).toContain("there is already a gravity");
  });

  test("of a session are stored before they are answered", async () => {
    const troupe = await startCalc({}, { extensible: true });
    const session = await troupe.session("s");
    await session.extend({ name: "gravity", value: 10 });
    await troupe.kill({ sessionWorker: 0 });
    expect((await session.turn(cell("finish gravity"))).outcome).toMatchObject({ value: 10 });
  });

  // §15.80
  test("of a turn are validated before anything happens, and reach the protocol and its code", async () => {
    const troupe = await startCalc({ model: showing, store: { path: await tempFolder() } });
    const session = await troupe.session("s");
    const error = await refusalOf(session.turn("words", { protocolExtension: { units: 3 } }));
    expect(error.code).toBe("protocol_turn_extension");
    expect(error.message).toContain("units are missing");
    expect((await session.info()).revision).toBe(0);
    expect(await readBack(session.turn(cell("units"), { protocolExtension: { units: "metres" } }))).toBe("metres");
    await session.turn("report", { protocolExtension: { units: "feet" } });
    expect(await lastOf(session)).toMatchObject({ extension: { units: "feet" } });
    // A protocol that does not look at them accepts them.
    const standard = await startTroupe({ sessionWorkers: 1 });
    const turn = (await standard.session("s")).turn("hi", { protocolExtension: { anything: true } });
    expect((await turn).outcome.type).toBe("finished");
  });
});

describe("beforeLlmCall", () => {
  // §15.81
  test("is asked before every model call, with the messages and the usage so far", async () => {
    const troupe = await startCalc({
      model: scriptedModel({ turns: [[{ text: cell("x = 1"), usage: { inputTokens: 9 } }, { text: "done" }]] }),
    });
    const session = await troupe.session("s");
    await session.turn("report");
    expect((await logOf(session)).filter((entry) => typeof entry === "object")).toMatchObject([
      { step: 0 },
      { step: 1, latestUsage: 9 },
    ]);
  });

  // §15.81
  test("can end the turn with a frame switch: the model is not called, and the task is done in the new frame", async () => {
    const path = await tempFolder();
    const options = withCalc({ model: showing, store: { path } });
    const troupe = await createTroupe(options);
    const session = await troupe.session("s");
    await session.turn("before");
    const { before, ...last } = await session.turn("switch second");
    expect(before).toMatchObject([{ turnIndex: 2, modelCalls: 0, text: "", issues: [] }]);
    expect(before?.[0]?.outcome).toEqual({ type: "frame_switch", frameId: "second", task: "go to second" });
    expect(last).toMatchObject({ turnIndex: 3, modelCalls: 1, issues: [], outcome: { type: "finished" } });
    expect(await session.inputs()).toEqual([]);
    const { frameId, frames, revision } = await session.view();
    expect([frameId, frames.map((left) => [left.frameId, left.reason])]).toEqual(["second", [["main", "switch"]]]);
    expect(last.revision).toBe(revision);
    const conversation = async (of: Session) => JSON.parse((await of.turn(cell("print 1"))).text).conversation;
    const inSecond = [
      ["user", "switch second"],
      ["user", "go to second"],
      ["assistant", last.text],
      ["user", "```calc\nprint 1\n```"],
      ["assistant", "```calc\nprint 1\n```"],
      ["user", "1.00"],
    ];
    expect(await conversation(session)).toEqual(inSecond);
    await troupe.close();
    // Both frames are there after a restart: the current one to go on in, the old one to read.
    const reader = openLmdbReader(path);
    const old = readHistory(reader, frames[0]?.leaf ?? null);
    reader.close();
    expect(old.map(({ role, parts }) => [role, parts[0]?.type === "text" ? parts[0].text : ""])).toEqual([
      ["user", "before"],
      ["assistant", "before"],
      ["user", "switch second"],
    ]);
    const again = await (await startTroupe(options)).session("s");
    expect((await conversation(again)).slice(0, 6)).toEqual(inSecond);
    expect((await again.messages({ frameId: "main" })).length).toBe(3);
    expect(await refusalOf(again.messages({ frameId: "third" }))).toMatchObject({ code: "frame_unknown" });
  });

  // turn §8.45
  test("that switches again and again is stopped at the sixteenth frame, and the session goes on", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    const { before, outcome, turnIndex } = await session.turn("wander 1");
    expect(before?.map((turn) => turn.outcome.type)).toEqual(Array(16).fill("frame_switch"));
    expect(outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "frame_switch_limit" });
    expect(turnIndex).toBe(17);
    expect(await session.inputs()).toEqual([]);
    expect((await session.turn("report")).outcome.type).toBe("finished");
  });

  // turn §8.44
  test("hands its task over for good: when the turn in the new frame fails, it waits for the next", async () => {
    const refuses = { module: plugin("refuses-once"), tier: "inline", options: { input: "go to refused" } } as const;
    const troupe = await startCalc({ plugins: [refuses] });
    const session = await troupe.session("s");
    const result = await session.turn("switch refused");
    expect(result).toMatchObject({ turnIndex: 1, outcome: { type: "frame_switch" } });
    expect(result.issues).toMatchObject([{ kind: "runtime", code: "plugin_prepare_turn" }]);
    await until("the task is done after all", async () => (await session.info()).turns === 2);
    expect(await session.inputs()).toEqual([]);
  });

  // §15.81
  test("an error, an answer that is none, and a frame that cannot be entered stop the turn", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    await session.turn("switch second");
    for (const [input, why] of [
      ["fail-before", "the line is dead"],
      ["garbage-before", "beforeLlmCall returns"],
      ["switch-badly third", "node 0 must be"],
      ["switch second", "already has a frame second"],
      ["switch main", "already has a frame main"],
    ] as const) {
      const { outcome, modelCalls, issues } = await session.turn(input);
      expect(outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "before_llm_call_failed" });
      expect(issues[0]?.message).toContain(why);
      expect(modelCalls).toBe(0);
    }
    expect((await session.view()).frameId).toBe("second");
  });

  test("that never answers is left when the turn is cancelled", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    const turn = session.turn("hang-before");
    const cancelled = turn.then(({ outcome }) => outcome);
    await until("it hangs", async () => (await logOf(session)).includes("hanging"));
    turn.cancel("enough");
    expect(await cancelled).toMatchObject({ type: "stopped", reason: "cancelled" });
  });

  // §15.81
  test("has the host services, direct completions among them; so has code", async () => {
    const model = scriptedModel({
      turns: [[{ text: "{input}" }, { text: "done" }]],
      direct: [{ source: "calc", text: "said of {input}", usage: { inputTokens: 5, outputTokens: 1 } }],
    });
    const troupe = await startCalc({ model });
    const session = await troupe.session("s");
    await session.turn("ask");
    expect(await lastOf(session)).toBe("asked: said of ask, 1 messages");
    expect((await session.turn(cell("think hard"))).outcome.type).toBe("finished");
    expect((await session.view()).ledger).toContainEqual({
      source: "calc",
      model: "scripted",
      usage: { inputTokens: 10, outputTokens: 2, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
    });
  });
});

describe("the session's life as its protocol sees it", () => {
  test("it is initialised, restored and materialised at every opening, in this order", async () => {
    const troupe = await startCalc(RESIDENT); // Its openings are counted.
    const session = await troupe.session("s");
    const opening = ["initializeSession", "restoreSession 0 0", "materialize root {}"];
    expect(await logOf(session)).toEqual(opening);
    await session.turn("words");
    await session.close();
    expect((await logOf(await troupe.session("s"))).slice(-3)).toEqual([
      "initializeSession",
      "restoreSession 1 2",
      "materialize root {}",
    ]);
    await troupe.kill({ sessionWorker: 0 });
    // Another thread, another module: only what this opening did is known there.
    expect(await logOf(await troupe.session("s"))).toEqual([
      "initializeSession",
      "restoreSession 1 2",
      "materialize root {}",
    ]);
  });

  test("nodes from outside are shown to it first, and it can refuse them", async () => {
    const troupe = await startCalc();
    const session = await troupe.session("s");
    const message = (text: string) => ({ kind: "message", message: { role: "user", text } }) as const;
    expect(await session.append({ nodes: [message("welcome"), { kind: "protocol_event", event: 1 }] })).toMatchObject({
      status: "appended",
    });
    expect(await lastOf(session)).toBe("appendSessionNodes message,protocol_event");
    const { revision } = await session.view();
    const error = await refusalOf(session.append({ nodes: [message("forbidden")] }));
    expect([error.code, error.details.method]).toEqual(["protocol_failed", "appendSessionNodes"]);
    expect((await session.view()).revision).toBe(revision);
    // The turn's own messages are not from outside.
    await session.turn("words");
    expect((await logOf(session)).filter((entry) => String(entry).startsWith("append"))).toHaveLength(2);
  });
});

describe("a driver", () => {
  test.each([
    "number",
    "nothing",
    "no interpret",
    "no tools",
    "wrong tools",
    "wrong prompt",
    "wrong contributions",
    "throw",
  ])(
    "that builds no usable preamble (%s) stops the turn before the model is called, and only that turn",
    async (preamble) => {
      const troupe = await startCalc();
      const session = await troupe.session("s");
      const broken = await session.turn("hi", { protocolOptions: { schemaVersion: 1, payload: { preamble } } });
      expect(broken.outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "plugin_prompt" });
      expect(broken.modelCalls).toBe(0);
      expect((await session.turn("words")).outcome).toEqual({ type: "finished", text: "words" });
    },
  );

  test.each([
    ["garbage step", "interpret returned no step"],
    ["throwing step", "I cannot read this"],
  ])("that makes nothing of an answer (%s) stops the turn; the call is counted", async (text, why) => {
    const troupe = await startCalc({
      model: scriptedModel({ turns: [[{ text, usage: { inputTokens: 5 } }], [{ text: "fine" }]] }),
    });
    const session = await troupe.session("s");
    const result = await session.turn("hi");
    expect(result.outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "protocol_failed" });
    expect(result.issues[0]?.message).toContain(why);
    expect([result.modelCalls, result.usage.inputTokens]).toEqual([1, 5]);
    expect((await session.turn("again")).outcome).toEqual({ type: "finished", text: "fine" });
  });

  test("can ask for tools as native tool calling does", async () => {
    const troupe = await startCalc({
      model: scriptedModel([{ text: "tools step" }, { text: "Result: {tool_result}" }]),
    });
    expect((await (await troupe.session("s")).turn("hi")).text).toBe("Result: x");
  });

  // turn §8.7
  test.each([
    [false, 1],
    [true, 3],
  ])("with syncExecutionEnvironment %s has the prompt made anew for every model call or not", async (sync, times) => {
    const steps = [{ text: cell("x = 1") }, { text: cell("x = 2") }, { text: "done" }];
    const plugins = [{ module: plugin("scriptable"), options: { promptContributor: "contribute" } }];
    const troupe = await startCalc({ model: scriptedModel(steps), plugins }, { sync });
    const session = await troupe.session("s");
    expect((await session.turn("hi")).modelCalls).toBe(3);
    const { hooks } = await troupe.stats();
    expect(hooks["plugin_hook.prompt_contributor.test.scriptable"]?.count).toBe(times);
    // The preamble itself is built once: the catalog has not changed.
    expect((await logOf(session)).filter((entry) => String(entry).startsWith("buildPreamble"))).toEqual([
      "buildPreamble echo",
    ]);
  });
});

describe("the slots of a protocol", () => {
  // §15.4
  test.each(["session", "driver", "codeExecutor"])(
    "two plugins with a protocol %s are refused by name",
    async (piece) => {
      const plugins = [{ module: plugin("protocol-piece"), tier: "inline", options: { pieces: [piece] } }] as const;
      const troupe = await startCalc({ plugins });
      const error = await refusalOf(troupe.session("s"));
      expect([error.code, error.details]).toEqual([
        "duplicate_singleton",
        { kind: `protocol ${piece}`, plugins: ["test.protocol-piece", "test.calc"] },
      ]);
      expect((await troupe.stats()).store.records).toBe(0);
    },
  );

  // §15.5
  test.each([
    [["driver", "codeExecutor"], "session"],
    [["session", "codeExecutor"], "driver"],
  ])("a protocol of only %j is missing its other half", async (pieces, piece) => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      protocol: { module: plugin("protocol-piece"), options: { pieces } },
    });
    const error = await refusalOf(troupe.session("s"));
    expect([error.code, error.details]).toEqual(["protocol_missing", { piece }]);
  });

  // §15.4
  test("can be filled by different plugins: an executor for a protocol that brings none", async () => {
    const troupe = await startCalc(
      {
        model: showing,
        plugins: [{ module: plugin("protocol-piece"), tier: "inline", options: { pieces: ["codeExecutor"] } }],
      },
      { without: ["codeExecutor"] },
    );
    expect(await readBack((await troupe.session("s")).turn(cell("anything")))).toBe("ran");
  });

  test("are for inline plugins: one in the tier worker is refused, declared or registered", async () => {
    const declared = await refusalOf(startTroupe({ plugins: [{ module: plugin("calc") }] }));
    expect(declared.code).toBe("plugin_invalid");
    expect(declared.message).toContain('Give it the tier "inline"');
    const misplaced = { module: plugin("calc"), tier: "worker" } as const;
    expect((await refusalOf(startTroupe({ protocol: misplaced }))).code).toBe("invalid_options");
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("registers-protocol") }] });
    const registered = await refusalOf(troupe.session("s"));
    expect(registered.code).toBe("plugin_invalid");
    expect(registered.message).toContain('Give it the tier "inline"');
  });

  test("can be filled by a plugin that registers", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: fixture("models/show-prompt.mjs"),
      protocol: { module: plugin("registers-protocol") },
    });
    const { system } = JSON.parse((await (await troupe.session("s")).turn("hi")).text);
    expect(system).toBe("## Execution\n\nRegistered for s.");
  });

  const moodsOf = async ({ parked, options }: { parked: boolean; options: object }) => {
    const model = fixture("models/show-prompt.mjs");
    const protocol = { module: plugin("moods"), options };
    const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, model, protocol });
    const session = await troupe.session("s");
    const prompts: string[] = [];
    for (const mood of ["calm", "glad", "glad", "calm"]) {
      const { text } = await session.turn(mood);
      prompts.push(JSON.parse(text).system.split("\n").at(-1));
      if (parked) await session.park();
    }
    return prompts;
  };

  test.each([{ parked: false }, { parked: true }])(
    "a preamble tells the state of its driver's plugin as the turn's hooks left it (parked between turns: $parked)",
    async ({ parked }) => {
      expect(await moodsOf({ parked, options: {} })).toEqual([
        "Be calm, as in the 0 calls before.",
        "Be glad, as in the 1 calls before.",
        "Be glad, as in the 2 calls before.",
        "Be calm, as in the 3 calls before.",
      ]);
    },
  );

  test.each([{ parked: false }, { parked: true }])(
    "a preamble tells what the protocol's own pieces changed, also of a plugin without hooks (parked between turns: $parked)",
    async ({ parked }) => {
      expect(await moodsOf({ parked, options: { hooks: false } })).toEqual([
        "Be calm, as in the 0 calls before.",
        "Be calm, as in the 1 calls before.",
        "Be calm, as in the 2 calls before.",
        "Be calm, as in the 3 calls before.",
      ]);
    },
  );

  test("are the standard protocol's when nobody else fills them; it is a plugin, and one of its id takes its place", async () => {
    const options = {
      sessionWorkers: 1,
      model: fixture("models/show-prompt.mjs"),
      tools: { echo: echoTool, other: echoTool },
    };
    const standard = await startTroupe(options);
    expect(JSON.parse((await (await standard.session("s")).turn("hi")).text)).toMatchObject({
      system: "",
      tools: ["echo", "other"],
    });
    const replaced = await startTroupe({ ...options, plugins: [{ module: plugin("standard-again"), tier: "inline" }] });
    expect(JSON.parse((await (await replaced.session("s")).turn("hi")).text)).toMatchObject({
      system: "## Execution\n\nOne tool is enough.",
      tools: ["echo"],
    });
    // A whole protocol among the plugins is a second one, as long as the standard protocol is there.
    const second = await startTroupe({ ...options, plugins: [{ module: plugin("calc"), tier: "inline" }] });
    const error = await refusalOf(second.session("s"));
    expect([error.code, error.details.plugins]).toEqual(["duplicate_singleton", ["test.calc", "troupe.standard"]]);
  });
});
