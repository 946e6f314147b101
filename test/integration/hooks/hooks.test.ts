import { scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { untimed } from "../../support/activities.js";
import { listening } from "../../support/listening.js";
import {
  collect,
  EMPTY_OBJECT,
  fixture,
  oneToolCall,
  plugin,
  RESIDENT,
  refusalOf,
  startTroupe,
  until,
} from "../../support/runtime.js";

const echoTool = {
  description: "Says its argument",
  inputSchema: { type: "object", properties: { value: { type: "string" } }, required: ["value"] },
  execute: (args: unknown) => (args as { value: string }).value,
} as const;

describe.each(["worker", "inline"] as const)("hooks of a plugin in the tier %s", (tier) => {
  /** A runtime whose one plugin does `does` at the named hooks. */
  const withPlugin = (does: Record<string, string>, options: TroupeOptions = {}) => {
    // Only a hook that hangs is waited for: the others must not miss a deadline because the machine is slow.
    const hangs = Object.values(does).some((action) => action.startsWith("hang"));
    return startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("scriptable"), tier, options: does, ...(hangs && { deadlineMs: 1_000 }) }],
      tools: { echo: echoTool },
      model: oneToolCall("echo", { value: "original" }),
      ...options,
    });
  };
  const saying = scriptedModel({ turns: [[{ chunks: ["one ", "two ", "three"] }]] });

  test("every kind is called, in the order of the turn, with the session's own state", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("recorder"), tier }],
      tools: { echo: echoTool },
      model: oneToolCall("echo", { value: "x" }),
    });
    const session = await troupe.session("s");
    const activities = await collect(session.turn("hi"));
    const seen = activities.find((activity) => activity.type === "plugin_event");
    expect(seen?.type === "plugin_event" && seen.event.payload).toEqual([
      "session_restored",
      "before_turn",
      "prompt_contributor",
      "assistant_response",
      "stream_finished:complete",
      "before_tool_call",
      "after_tool_call",
      "tool_result_projector",
      "checkpoint:after_work",
      "assistant_stream",
      "assistant_response",
      "stream_finished:complete",
      "checkpoint:before_completion",
      "after_turn",
    ]);
    const { hooks } = await troupe.stats();
    expect(hooks["plugin_hook.turn_finalized.test.recorder"]?.count).toBe(1);
    expect(hooks["plugin_hook.turn_persisted.test.recorder"]?.count).toBe(1);
    expect(hooks["plugin_hook.before_tool_call.test.recorder"]?.count).toBe(1);
    expect(hooks["plugin_hook.assistant_response.test.recorder"]?.count).toBe(2);
  });

  // §15.18
  test("a beforeTurn abort ends the turn before the model is called, and is stored", async () => {
    const troupe = await withPlugin({ beforeTurn: "abort" });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toEqual({
      type: "stopped",
      reason: "plugin_abort",
      code: "stop_it",
      message: "The plugin says stop.",
    });
    expect(result.modelCalls).toBe(0);
    expect(result.revision).toBe(1);
  });

  test("messages enqueued by beforeTurn reach the model in the plugin's name", async () => {
    const troupe = await withPlugin({ beforeTurn: "enqueueUser" }, { model: fixture("models/show-prompt.mjs") });
    const result = await (await troupe.session("s")).turn("hi");
    expect(JSON.parse(result.text).conversation).toEqual([
      ["user", "hi"],
      ["user", "a word from the plugin"],
    ]);
  });

  // §15.25
  test("an enqueued assistant message is refused, not dropped in silence", async () => {
    const troupe = await withPlugin({ beforeTurn: "enqueueAssistant" });
    const error = await refusalOf((await troupe.session("s")).turn("hi"));
    expect(error.code).toBe("plugin_prepare_turn");
    expect((error.cause as { code: string }).code).toBe("directive_not_allowed");
  });

  test.each(["throw", "reject", "hang", "garbage"])(
    "a beforeTurn hook that does %s refuses the turn, stores nothing, and the next turn works",
    async (does) => {
      const troupe = await withPlugin({ beforeTurn: `${does}Once` });
      const session = await troupe.session("s");
      const error = await refusalOf(session.turn("hi"));
      expect(error.code).toBe("plugin_prepare_turn");
      const code = { throw: undefined, reject: undefined, hang: "hook_timeout", garbage: "invalid_hook_answer" }[does];
      expect((error.cause as { code?: string }).code).toBe(code ?? "hook_failed");
      const result = await session.turn("again");
      expect(result.turnIndex).toBe(1);
      expect(result.outcome.type).toBe("finished");
    },
  );

  // §15.16
  test("prompt contributions are de-duplicated, placed in their slots and joined to the instructions", async () => {
    const troupe = await withPlugin(
      { promptContributor: "contribute" },
      { model: fixture("models/show-prompt.mjs"), instructions: "Host words." },
    );
    const result = await (await troupe.session("s")).turn("hi");
    expect(JSON.parse(result.text).system).toBe("Host words.\n\nYou are a test.\n\n## Guidance\n\nBe kind.");
  });

  // §15.35
  test("a catalog contributor takes a tool from the model: it is not offered, and calling it anyway is refused", async () => {
    const offered = await withPlugin(
      { toolCatalogContributor: "removeEcho" },
      { model: fixture("models/show-prompt.mjs") },
    );
    expect(JSON.parse((await (await offered.session("s")).turn("hi")).text).tools).toEqual([]);
    const called = await withPlugin({ toolCatalogContributor: "removeEcho" });
    const result = await (await called.session("s")).turn("hi");
    expect(result.toolCalls[0]?.output).toMatchObject({ failure: { code: "tool_unavailable" } });
  });

  test("a prompt contributor that throws ends the turn without a model call", async () => {
    const troupe = await withPlugin({ promptContributor: "throw" });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "plugin_prompt" });
    expect(result.modelCalls).toBe(0);
  });

  // §15.26
  test("a stream hook changes what is streamed and what is recorded", async () => {
    const troupe = await withPlugin({ assistantStream: "shout" }, { model: saying });
    const turn = (await troupe.session("s")).turn("hi");
    const activities = await collect(turn);
    const streamed = activities.map((activity) => (activity.type === "text_delta" ? activity.text : "")).join("");
    expect(streamed).toBe("ONE TWO THREE");
    expect((await turn).text).toBe("ONE TWO THREE");
  });

  // §15.26
  test("a stream hook can end the model call; what was streamed is the answer", async () => {
    const troupe = await withPlugin(
      { assistantStream: "abortStream" },
      { model: scriptedModel({ turns: [[{ chunks: ["kept", " not kept"], chunkDelayMs: 20 }]] }) },
    );
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toEqual({ type: "finished", text: "kept" });
  });

  // §15.27
  test("a stream hook that throws fails the model call", async () => {
    const troupe = await withPlugin({ assistantStream: "throw" }, { model: saying });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toMatchObject({ reason: "provider_error", code: "plugin_assistant_stream" });
  });

  test("a response hook replaces the completion and tells the host", async () => {
    const troupe = await withPlugin({ assistantResponse: "rewrite" }, { model: saying });
    const turn = (await troupe.session("s")).turn("hi");
    const activities = await collect(turn);
    expect((await turn).text).toBe("rewritten");
    expect(untimed(activities)).toContainEqual({
      type: "plugin_event",
      pluginId: "test.scriptable",
      event: { name: "rewrote" },
    });
  });

  // §15.29
  test("a response hook that throws fails the model call", async () => {
    const troupe = await withPlugin({ assistantResponse: "throw" }, { model: saying });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toMatchObject({ reason: "provider_error", code: "plugin_assistant_response" });
  });

  test.each([
    ["deny", { status: "failure", failure: { kind: "permission_denied", code: "forbidden", message: "Not allowed." } }],
    ["shortCircuit", { status: "success", value: "from the plugin" }],
    ["replaceArgs", { status: "success", value: "replaced" }],
  ])("beforeToolCall can %s", async (does, output) => {
    const troupe = await withPlugin({ beforeToolCall: does });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.toolCalls[0]?.output).toEqual(output);
    expect(result.outcome.type).toBe("finished");
  });

  // §15.39
  test("arguments a plugin puts in are validated like the model's own", async () => {
    const troupe = await withPlugin({ beforeToolCall: "brokenArgs" });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.toolCalls[0]?.output).toMatchObject({ status: "failure", failure: { code: "invalid_tool_args" } });
  });

  test("abortTurn from a tool hook ends the turn, not only the call", async () => {
    const troupe = await withPlugin({ beforeToolCall: "abort" });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toMatchObject({ reason: "plugin_abort", code: "stop_it" });
    expect(result.modelCalls).toBe(1);
  });

  // §15.54
  test.each(["throw", "hang", "garbage"])(
    "a beforeToolCall hook that does %s fails its call, not the turn",
    async (does) => {
      const troupe = await withPlugin({ beforeToolCall: does });
      const result = await (await troupe.session("s")).turn("hi");
      expect(result.toolCalls[0]?.output).toMatchObject({
        status: "failure",
        failure: { code: "before_tool_call_failed" },
      });
      expect(result.outcome.type).toBe("finished");
    },
  );

  // §15.54
  test("afterToolCall can replace the result, and failing replaces it by a failure", async () => {
    const replacing = await withPlugin({ afterToolCall: "shortCircuit" });
    expect((await (await replacing.session("s")).turn("hi")).toolCalls[0]?.output).toEqual({
      status: "success",
      value: "from the plugin",
    });
    const throwing = await withPlugin({ afterToolCall: "throw" });
    expect((await (await throwing.session("s")).turn("hi")).toolCalls[0]?.output).toMatchObject({
      failure: { code: "after_tool_call_failed" },
    });
  });

  // §15.30
  test("a tool result projector changes what the model reads and nothing else", async () => {
    const troupe = await withPlugin({ toolResultProjector: "project" });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.toolCalls[0]).toMatchObject({
      output: { status: "success", value: "original" },
      modelText: "echo says success",
    });
    expect(result.text).toBe("Result: echo says success");
  });

  // §15.30
  test("a projector that throws shows the model that it failed; the record keeps the result, and an issue names the plugin", async () => {
    const troupe = await withPlugin({ toolResultProjector: "throw" });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.toolCalls[0]?.output).toEqual({ status: "success", value: "original" });
    expect(result.text).toContain("could not be shown");
    expect(result.text).not.toContain("boom");
    expect(result.issues).toEqual([
      { kind: "plugin", code: "hook_failed", message: expect.stringContaining("boom"), pluginId: expect.any(String) },
    ]);
  });

  // §15.28
  test("stream_finished says that a model call failed", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("recorder"), tier }],
      model: scriptedModel({ turns: [[{ chunks: ["a", "b"], fail: { code: "model_stream_cut", afterChunks: 1 } }]] }),
    });
    const turn = (await troupe.session("s")).turn("hi");
    const seen = (await collect(turn)).find(({ type }) => type === "plugin_event");
    expect((await turn).outcome).toMatchObject({ code: "model_stream_cut" });
    expect(JSON.stringify(seen)).toContain("stream_finished:provider_error");
  });

  // §15.23
  test("a checkpoint that injects before completion reopens the turn, and the first answer stays in history", async () => {
    const troupe = await withPlugin({ checkpoint: "enqueueUserOnce" }, { model: fixture("models/show-prompt.mjs") });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.modelCalls).toBe(2);
    const { conversation } = JSON.parse(result.text);
    expect(conversation.map(([role]: [string]) => role)).toEqual(["user", "assistant", "user"]);
  });

  test("an injector that never stops is bounded by the turn's step limit", async () => {
    const troupe = await withPlugin({ checkpoint: "enqueueUser" }, { model: saying, maxSteps: 4 });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toMatchObject({ reason: "max_turns" });
    expect(result.modelCalls).toBe(4);
  });

  test("a checkpoint hook that throws stops the turn, which is stored", async () => {
    const troupe = await withPlugin({ checkpoint: "throw" });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome).toMatchObject({ reason: "runtime_error", code: "plugin_checkpoint" });
    expect(result.revision).toBe(1);
  });

  // §15.22
  test("afterTurn can add to the history without another model call", async () => {
    const troupe = await withPlugin({ afterTurn: "enqueueUser" }, { model: fixture("models/show-prompt.mjs") });
    const session = await troupe.session("s");
    expect((await session.turn("hi")).modelCalls).toBe(1);
    const { conversation } = JSON.parse((await session.turn("more")).text);
    expect(
      conversation.map(([, text]: [string, string]) => text).filter((text: string) => !text.startsWith("{")),
    ).toEqual(["hi", "a word from the plugin", "more"]);
  });

  // §15.21
  test("afterTurn may not abort: the turn is refused and nothing is stored", async () => {
    const troupe = await withPlugin({ afterTurn: "abortOnce" });
    const session = await troupe.session("s");
    const error = await refusalOf(session.turn("hi"));
    expect(error.code).toBe("plugin_finalize_turn");
    expect((await session.turn("again")).revision).toBe(1);
  });

  test("events of afterTurn are told after the turn is stored", async () => {
    const troupe = await withPlugin({ afterTurn: "emit" });
    const activities = await collect((await troupe.session("s")).turn("hi"));
    const types = activities.map(({ type }) => type);
    expect(types.slice(-2)).toEqual(["plugin_event", "turn_finished"]);
  });

  // §15.32
  test("a failing lifecycle hook is an issue of the turn, not its end", async () => {
    const troupe = await withPlugin({ turnFinalized: "throw", turnPersisted: "reject" });
    const result = await (await troupe.session("s")).turn("hi");
    expect(result.outcome.type).toBe("finished");
    expect(result.issues.map(({ code, pluginId }) => [code, pluginId])).toEqual([
      ["lifecycle_hook_failed", "test.scriptable"],
      ["lifecycle_hook_failed", "test.scriptable"],
    ]);
  });

  test("a session_restored hook that throws fails the open", async () => {
    const troupe = await withPlugin({ sessionRestored: "throw" });
    const error = await refusalOf(troupe.session("s"));
    expect(error.code).toBe("session_restore_failed");
  });
});

describe("isolation", () => {
  test("an answer that cannot cross the thread fails its own call only", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("scriptable"), options: { beforeTurn: "unserialisableOnce" } }],
    });
    const session = await troupe.session("s");
    const error = await refusalOf(session.turn("hi"));
    expect((error.cause as { code: string }).code).toBe("unserialisable");
    expect((await session.turn("again")).outcome.type).toBe("finished");
  });

  test.each(["spin", "exit", "crash"])(
    "a plugin whose hook does %s is replaced, other plugins and later turns go on",
    async (does) => {
      const troupe = await startTroupe({
        sessionWorkers: 1,
        plugins: [
          { module: plugin("scriptable"), options: { beforeTurn: does }, deadlineMs: 2_000, isolation: "shared" },
          { module: plugin("counter"), isolation: "shared" },
        ],
      });
      const session = await troupe.session("s");
      const error = await refusalOf(session.turn("hi"));
      expect(error.code).toBe("plugin_prepare_turn");
      expect(["hook_timeout", "worker_lost", "plugin_blocked"]).toContain((error.cause as { code: string }).code);
      await until("the plugin was replaced", async () => ((await troupe.stats()).plugins[0]?.restarts ?? 0) > 0);
      expect((await troupe.stats()).plugins.find(({ id }) => id === "test.counter")?.restarts).toBe(0);
    },
  );

  test("a hook nobody registered costs no message, and no hook call touches the main thread", async () => {
    const troupe = await startTroupe({
      ...RESIDENT, // Leaving memory is a message to the plugin.
      sessionWorkers: 1,
      plugins: [{ module: plugin("counter") }],
      tools: { nothing: { description: "d", inputSchema: EMPTY_OBJECT, execute: () => null } },
    });
    const session = await troupe.session("s");
    await session.turn("first");
    const before = await troupe.stats();
    for (let turn = 0; turn < 10; turn++) await session.turn("hi");
    const after = await troupe.stats();
    // The counter has one hook (beforeTurn) and state to capture: two calls a turn, each its own message.
    expect(after.hookMessages.sent - before.hookMessages.sent).toBe(20);
    // One answer per turn, and nothing else: hooks, capture and commit never pass the main thread.
    expect(after.mainMessages.lane - before.mainMessages.lane).toBe(10);
    // What Comlink sent in between is the answers to the second stats() itself.
    const perStats = 2;
    expect(after.mainMessages.control - before.mainMessages.control).toBe(perStats);
  });

  test("hook calls of one tick, from many sessions, leave in one message", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("counter") }] });
    const sessions = await Promise.all(Array.from({ length: 50 }, (_, i) => troupe.session(`s${i}`)));
    await Promise.all(sessions.map((session) => session.turn("warm up")));
    const before = await troupe.stats();
    await Promise.all(sessions.map((session) => session.turn("hi")));
    const after = await troupe.stats();
    expect(after.hooks["plugin_hook.before_turn.test.counter"]?.count).toBe(100);
    // 50 sessions call beforeTurn and capture: 100 calls in far fewer messages.
    expect(after.hookMessages.sent - before.hookMessages.sent).toBeLessThan(20);
  });

  test("a plugin may read its own package and nothing else, unless it is granted", async () => {
    const read = { module: plugin("reads-files"), options: { path: "/etc/hostname" } };
    const { onEvent, first } = listening();
    const denied = await startTroupe({ sessionWorkers: 1, plugins: [read], model: oneToolCall("read"), onEvent });
    expect((await (await denied.session("s")).turn("hi")).toolCalls[0]?.output).toMatchObject({
      failure: { code: "tool_failed", message: "read failed" },
    });
    expect((await first("tool_failed")).error.message).toContain("ERR_ACCESS_DENIED");
    const granted = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ ...read, permissions: { read: ["/etc/hostname"] } }],
      model: oneToolCall("read"),
    });
    expect((await (await granted.session("s")).turn("hi")).toolCalls[0]?.output.status).toBe("success");
  });

  test("a plugin's thread has an empty environment", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("reads-files"), options: { path: "" } }],
      model: oneToolCall("environment"),
    });
    expect((await (await troupe.session("s")).turn("hi")).toolCalls[0]?.output).toEqual({
      status: "success",
      value: [],
    });
  });
});
