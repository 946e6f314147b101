import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import type {
  AppendNode,
  Json,
  JsonObject,
  Message,
  ModelResponse,
  PreparedContext,
  SessionConfig,
  SubagentContext,
  ToolOutput,
  ToolSpec,
  TurnResult,
  Usage,
} from "../../../src/kernel/index.js";
import {
  abortTurn,
  type BeforeLlmCallContext,
  type CodeExecutor,
  createSession,
  type DirectCompletion,
  definePlugin,
  deny,
  type ExecutionContext,
  type Extensions,
  emitTrace,
  enqueueMessages,
  HOOK_HOSTS,
  HOOK_KINDS,
  HOST_METHODS,
  type HookContext,
  type HookKind,
  type HostMethod,
  hostFacade,
  OPERATION_HOSTS,
  type PluginActionHost,
  type PluginOptions,
  type Preamble,
  type ProtocolTurnOptions,
  QUERY_HOST,
  type QueryHost,
  queueTurn,
  replaceToolArgs,
  type SessionHandle,
  type SessionPlugin,
  type SessionView,
  type SnapshotMeta,
  shortCircuitTool,
  TOOL_HOOK_HOST,
  type ToolHookHost,
} from "../../../src/plugin/index.js";

/** These tests are read by the compiler too: a line that should not compile and does is an error of `npm run check`. */
const base = { id: "acme.test", version: "1.0.0" } as const;

const SNAPSHOT = ["snapshotCurrent", "snapshotSession", "readMessages"] as const;
const CATALOG = ["toolCatalog"] as const;
const TOOL_STATE = [
  "toolState",
  "applyToolState",
  "setToolsAvailability",
  "setToolAvailability",
  "setToolMembership",
] as const;
const LIFECYCLE = ["createSession", "takeFirstTurnInput", "closeSession"] as const;
const TURN = ["startTurnStream", "awaitTurn", "cancelTurn", "startTurn", "startTurnTask"] as const;
const TASK = [
  "injectTurnInput",
  "spawnHiddenTask",
  "awaitHiddenTasks",
  "spawnManagedTask",
  "cancelManagedTask",
  "registerBackgroundTask",
  "unregisterBackgroundTask",
  "completeBackgroundTask",
  "transitionBackgroundTaskLiveState",
  "listBackgroundTasks",
  "cancelBackgroundTask",
  "cancelAllBackgroundTasks",
  "validateAsyncHandlesVisible",
  "transferAsyncHandles",
  "cancelUnreferencedAsyncHandles",
] as const;
const MONITOR = ["monitorSnapshot", "takeMonitorUpdates", "startMonitor", "stopMonitor"] as const;
/** What is granted under one name, and the names its methods go by elsewhere. */
const PROCESSES = ["processes"] as const;
const OF_PROCESSES = ["list", "read", "wait", "start", "write", "end", "signal", "stop"] as const;
const PROCESS_METHODS = [
  "listProcesses",
  "readProcess",
  "waitForProcess",
  "startProcess",
  "writeToProcess",
  "endProcessInput",
  "signalProcess",
  "stopProcess",
] as const;
const TRIGGERS = ["triggers"] as const;
const OF_TRIGGERS = ["list", "subscriptions", "emit", "subscribe", "unsubscribe"] as const;
const TRIGGER_METHODS = [
  "listTriggers",
  "listSubscriptions",
  "emitTrigger",
  "subscribeToTrigger",
  "unsubscribeFromTrigger",
] as const;
const GRAPH = ["appendSessionNodes"] as const;
const DIRECT = ["directCompletion", "directLlmCompletion"] as const;
const TRACE = ["emitTraceEvent"] as const;

const PROMPT_HOST = [...SNAPSHOT, ...CATALOG, ...TASK, ...DIRECT] as const;
const TURN_HOST = [...SNAPSHOT, ...TOOL_STATE, ...LIFECYCLE, ...TRACE] as const;
const RESULT_HOST = [...LIFECYCLE, ...TRACE] as const;
const HISTORY_HOST = [...SNAPSHOT, ...LIFECYCLE, ...TURN, ...TASK, ...GRAPH, ...DIRECT] as const;
const EVERYTHING = [
  ...SNAPSHOT,
  ...CATALOG,
  ...TOOL_STATE,
  ...LIFECYCLE,
  ...TURN,
  ...TASK,
  ...MONITOR,
  ...PROCESSES,
  ...TRIGGERS,
  ...GRAPH,
  ...DIRECT,
  ...TRACE,
] as const;
const NOTHING = [] as const;

/** What the hooks of each kind can ask of the host. */
const HOSTS = {
  context_transform: HISTORY_HOST,
  before_turn: TURN_HOST,
  tool_catalog_contributor: NOTHING,
  prompt_contributor: PROMPT_HOST,
  assistant_stream: NOTHING,
  assistant_response: NOTHING,
  assistant_prose_projector: NOTHING,
  stream_finished: NOTHING,
  before_tool_call: EVERYTHING,
  after_tool_call: EVERYTHING,
  tool_result_projector: NOTHING,
  checkpoint: RESULT_HOST,
  after_turn: RESULT_HOST,
  turn_finalized: NOTHING,
  turn_persisted: HISTORY_HOST,
  session_restored: NOTHING,
  session_config_mutator: TASK,
  session_config_changed: TASK,
  context_compactor: HISTORY_HOST,
} as const satisfies Record<HookKind, readonly (HostMethod | "processes" | "triggers")[]>;

/** What the compiler lets the hooks of a kind call. */
type Callable<K extends HookKind> = keyof HookContext<K, unknown, unknown>["host"];

describe("the host services of a hook", () => {
  it.each(Object.keys(HOSTS) as HookKind[])("of kind %s are those of its kind and no others", (kind) => {
    const methods = Object.keys(hostFacade(HOOK_HOSTS[kind], () => Promise.resolve()));
    expect(methods.sort()).toEqual([...HOSTS[kind]].sort());
  });

  it("are known for every kind", () => {
    expect(Object.keys(HOSTS).sort()).toEqual(Object.values(HOOK_KINDS).sort());
    const flat = EVERYTHING.filter((name) => name !== "processes" && name !== "triggers");
    expect(Object.keys(HOST_METHODS).sort()).toEqual([...flat, ...PROCESS_METHODS, ...TRIGGER_METHODS].sort());
  });

  it("under processes are those that look at them for a query, and all of them for a tool", () => {
    const under = (granted: typeof QUERY_HOST | typeof TOOL_HOOK_HOST) => {
      const { processes } = hostFacade(granted, () => Promise.resolve()) as { readonly processes: object };
      return Object.keys(processes).sort();
    };
    expect(under(QUERY_HOST)).toEqual([...OF_PROCESSES.slice(0, 3)].sort());
    expect(under(TOOL_HOOK_HOST)).toEqual([...OF_PROCESSES].sort());
    expectTypeOf<keyof QueryHost["processes"]>().toEqualTypeOf<"list" | "read" | "wait">();
    expectTypeOf<keyof ToolHookHost["processes"]>().toEqualTypeOf<(typeof OF_PROCESSES)[number]>();
  });

  it("under triggers are those that look at them for a query, and all of them for a tool", () => {
    const under = (granted: typeof QUERY_HOST | typeof TOOL_HOOK_HOST) => {
      const { triggers } = hostFacade(granted, () => Promise.resolve()) as { readonly triggers: object };
      return Object.keys(triggers).sort();
    };
    expect(under(QUERY_HOST)).toEqual(["list", "subscriptions"]);
    expect(under(TOOL_HOOK_HOST)).toEqual([...OF_TRIGGERS].sort());
    expectTypeOf<keyof QueryHost["triggers"]>().toEqualTypeOf<"list" | "subscriptions">();
    expectTypeOf<keyof ToolHookHost["triggers"]>().toEqualTypeOf<(typeof OF_TRIGGERS)[number]>();
  });

  it("compile exactly when they are granted", () => {
    type Granted<K extends HookKind> = (typeof HOSTS)[K][number];
    expectTypeOf<Callable<"context_transform">>().toEqualTypeOf<Granted<"context_transform">>();
    expectTypeOf<Callable<"before_turn">>().toEqualTypeOf<Granted<"before_turn">>();
    expectTypeOf<Callable<"tool_catalog_contributor">>().toEqualTypeOf<never>();
    expectTypeOf<Callable<"prompt_contributor">>().toEqualTypeOf<Granted<"prompt_contributor">>();
    expectTypeOf<Callable<"assistant_stream">>().toEqualTypeOf<never>();
    expectTypeOf<Callable<"assistant_response">>().toEqualTypeOf<never>();
    expectTypeOf<Callable<"assistant_prose_projector">>().toEqualTypeOf<never>();
    expectTypeOf<Callable<"stream_finished">>().toEqualTypeOf<never>();
    expectTypeOf<Callable<"before_tool_call">>().toEqualTypeOf<Granted<"before_tool_call">>();
    expectTypeOf<Callable<"after_tool_call">>().toEqualTypeOf<Granted<"after_tool_call">>();
    expectTypeOf<Callable<"tool_result_projector">>().toEqualTypeOf<never>();
    expectTypeOf<Callable<"checkpoint">>().toEqualTypeOf<Granted<"checkpoint">>();
    expectTypeOf<Callable<"after_turn">>().toEqualTypeOf<Granted<"after_turn">>();
    expectTypeOf<Callable<"turn_finalized">>().toEqualTypeOf<never>();
    expectTypeOf<Callable<"turn_persisted">>().toEqualTypeOf<Granted<"turn_persisted">>();
    expectTypeOf<Callable<"session_restored">>().toEqualTypeOf<never>();
    expectTypeOf<Callable<"session_config_mutator">>().toEqualTypeOf<Granted<"session_config_mutator">>();
    expectTypeOf<Callable<"session_config_changed">>().toEqualTypeOf<Granted<"session_config_changed">>();
    expectTypeOf<Callable<"context_compactor">>().toEqualTypeOf<Granted<"context_compactor">>();
  });

  it("read as they should in a plugin", () => {
    definePlugin({
      ...base,
      hooks: {
        async promptContributor({ host, sessionId }) {
          const { text, usage } = await host.directCompletion({ messages: [{ role: "user", text: "Sum up." }] }, "sum");
          expectTypeOf({ text, usage }).toEqualTypeOf<{ text: string; usage: Usage }>();
          expectTypeOf(await host.readMessages(sessionId)).toEqualTypeOf<readonly Message[]>();
          // @ts-expect-error a prompt makes no sessions
          await host.createSession();
        },
        async beforeTurn({ host }) {
          expectTypeOf(await host.snapshotCurrent()).toEqualTypeOf<SessionView>();
          expectTypeOf(await host.createSession({ relation: "root" })).toEqualTypeOf<SessionHandle>();
          // @ts-expect-error its own turn has not begun; others are not its business
          await host.startTurn("child", "go");
          // @ts-expect-error there is no such relation
          await host.createSession({ relation: "cousin" });
        },
        async afterTurn({ host, sessionId }) {
          await host.createSession({ firstTurnInput: "Look at it.", authority: { hiddenTools: ["shell"] } });
          await host.emitTraceEvent({}, { name: "done", payload: [1] });
          // @ts-expect-error the tools are what they were
          await host.toolState(sessionId);
        },
        async afterToolCall({ host }) {
          expectTypeOf(await host.startTurn("child", { text: "go" })).toEqualTypeOf<TurnResult>();
        },
        assistantStream({ host, chunk }) {
          // @ts-expect-error a chunk waits for nobody
          host.snapshotCurrent();
          return chunk;
        },
      },
    });
  });
});

describe("the context of a hook", () => {
  it("has the facts of its kind, with state and options", () => {
    definePlugin({
      ...base,
      options: z.object({ keep: z.number() }),
      state: () => ({ cut: 0 }),
      hooks: {
        turnContextTransform({ prepared, input, messageCount, promptTokens, maxContextTokens, state, options }) {
          expectTypeOf(prepared).toEqualTypeOf<PreparedContext>();
          expectTypeOf({ input, messageCount }).toEqualTypeOf<{ input: string; messageCount: number }>();
          expectTypeOf(promptTokens).toEqualTypeOf<number | null>();
          expectTypeOf(maxContextTokens).toEqualTypeOf<number | null>();
          state.cut++;
          return { messages: [{ from: Math.max(0, messageCount - options.keep), to: messageCount }] };
        },
        toolCatalogContributor({ tools, hiddenTools, subagent, extensions }) {
          expectTypeOf({ tools, hiddenTools }).toEqualTypeOf<{
            tools: readonly string[];
            hiddenTools: readonly string[];
          }>();
          expectTypeOf(subagent).toEqualTypeOf<SubagentContext | undefined>();
          expectTypeOf(extensions).toEqualTypeOf<Extensions>();
          return { remove: ["shell"], overrides: [{ toolName: "fs", availability: "off" }] };
        },
        proseProjector({ text, step }) {
          expectTypeOf({ text, step }).toEqualTypeOf<{ text: string; step: number }>();
          return text.trim();
        },
        streamFinished({ reason }) {
          expectTypeOf(reason).toEqualTypeOf<"complete" | "aborted" | "cancelled" | "provider_error">();
        },
        toolResultProjector: { tools: ["fs_*"], run: ({ output }) => output.status },
        sessionConfigMutator({ previous, current, config }) {
          expectTypeOf([previous, current, config]).toEqualTypeOf<SessionConfig[]>();
          return { maxSteps: Math.min(config.maxSteps ?? 8, 8) };
        },
        sessionConfigChanged(context) {
          expectTypeOf(context.current).toEqualTypeOf<SessionConfig>();
          // @ts-expect-error only a mutator is told what the one before made of it
          context.config;
        },
        contextCompactor: {
          priority: 10,
          run: ({ instructions, messageCount, maxContextTokens, state }) => {
            expectTypeOf(instructions).toEqualTypeOf<string | null>();
            expectTypeOf(maxContextTokens).toEqualTypeOf<number | null>();
            expectTypeOf(state).toEqualTypeOf<{ cut: number }>();
            return {
              initialNodes: [{ kind: "message", message: { role: "user", text: `${messageCount} messages` } }],
            };
          },
        },
        turnPersisted({ revision }) {
          expectTypeOf(revision).toEqualTypeOf<number>();
        },
        sessionRestored(context) {
          // @ts-expect-error no turn is running
          context.turnId;
        },
      },
    });
  });

  it("does not compile with a priority or tools where they mean nothing", () => {
    definePlugin({
      ...base,
      hooks: {
        // @ts-expect-error only transforms and compactors have a priority
        beforeTurn: { priority: 1, run: () => undefined },
        // @ts-expect-error a compactor is not about tools
        contextCompactor: { tools: ["shell"], run: () => undefined },
        // @ts-expect-error a priority is a number
        turnContextTransform: { priority: "high", run: () => undefined },
      },
    });
  });

  it("does not compile with an answer its kind does not know", () => {
    definePlugin({
      ...base,
      hooks: {
        // @ts-expect-error messages are places or texts, not bodies
        turnContextTransform: () => ({ messages: [{ id: "m", role: "user", parts: [] }] }),
        // @ts-expect-error there is no such availability
        toolCatalogContributor: () => ({ overrides: [{ toolName: "fs", availability: "gone" }] }),
        // @ts-expect-error there is no such setting
        sessionConfigMutator: () => ({ maxStep: 1 }),
        // @ts-expect-error a node needs its kind
        contextCompactor: () => ({ initialNodes: [{ text: "x" }] }),
        // @ts-expect-error it is told and not asked
        sessionConfigChanged: () => ({ maxSteps: 1 }),
        // @ts-expect-error prose is text
        proseProjector: () => 7,
      },
    });
  });
});

describe("directives", () => {
  it("that make sessions and leave traces compile at every site", () => {
    const both = () => [
      createSession({
        sessionId: "child",
        start: { kind: "existing_session", sessionId: "other" },
        config: { instructions: "Look closely." },
        initialNodes: [{ kind: "plugin", pluginType: "note", body: { n: 1 } }],
        pluginSource: "fresh",
      }),
      emitTrace("made", { child: "child" }, { span: "1" }),
    ];
    definePlugin({
      ...base,
      hooks: { beforeTurn: both, checkpoint: both, afterTurn: both, beforeToolCall: both, afterToolCall: both },
    });
    definePlugin({
      ...base,
      hooks: {
        beforeTurn: () => createSession(),
        checkpoint: async () => emitTrace("seen"),
        afterTurn: () => [createSession(), enqueueMessages({ role: "user", text: "x" })],
        beforeToolCall: { tools: ["shell"], run: () => [emitTrace("shell"), deny("no", "No.")] },
        afterToolCall: async () => [emitTrace("done"), shortCircuitTool(1), abortTurn("no", "No.")],
      },
    });
  });

  it("that hand a session over compile nowhere", () => {
    const handoff = () => ({ kind: "handoff_session", sessionId: "other" }) as const;
    definePlugin({
      ...base,
      hooks: {
        // @ts-expect-error sessions hand over by frames
        beforeTurn: handoff,
        // @ts-expect-error sessions hand over by frames
        checkpoint: handoff,
        // @ts-expect-error sessions hand over by frames
        afterTurn: handoff,
        // @ts-expect-error sessions hand over by frames
        beforeToolCall: handoff,
        // @ts-expect-error sessions hand over by frames
        afterToolCall: handoff,
      },
    });
  });

  it("that make sessions or leave traces do not compile outside the five sites", () => {
    definePlugin({
      ...base,
      hooks: {
        // @ts-expect-error a lifecycle event asks for nothing
        turnFinalized: () => emitTrace("t"),
        // @ts-expect-error a lifecycle event asks for nothing
        sessionRestored: () => createSession(),
        // @ts-expect-error it contributes to the prompt
        promptContributor: () => emitTrace("t"),
        // @ts-expect-error it transforms the stream
        assistantStream: () => createSession(),
      },
    });
  });

  it("are typed in what they carry", () => {
    // @ts-expect-error there is no such relation
    createSession({ relation: "cousin" });
    // @ts-expect-error a misspelt restriction restricts nothing
    createSession({ authority: { hideTools: ["shell"] } });
    // @ts-expect-error a first input is a text
    createSession({ firstTurnInput: 7 });
    // @ts-expect-error a function cannot cross a thread
    emitTrace("t", () => 1);
    // @ts-expect-error a context is an object
    emitTrace("t", null, "of s");
  });

  it("are data", () => {
    expect(createSession()).toEqual({ kind: "create_session", request: {} });
    expect(createSession({ sessionId: "child", relation: "root" })).toEqual({
      kind: "create_session",
      request: { sessionId: "child", relation: "root" },
    });
    expect(emitTrace("bare")).toEqual({ kind: "emit_trace", name: "bare" });
    expect(emitTrace("whole", null, { span: "1" })).toEqual({
      kind: "emit_trace",
      name: "whole",
      payload: null,
      context: { span: "1" },
    });
  });
});

describe("operations", () => {
  it("infer their arguments, and their host by their kind", () => {
    definePlugin({
      ...base,
      options: z.object({ max: z.number() }),
      state: () => ({ notes: ["a"] }),
      queries: {
        "notes.find": {
          description: "d",
          input: z.object({ word: z.string(), limit: z.number().default(3) }),
          async run(args, { host, state, options }) {
            expectTypeOf(args).toEqualTypeOf<{ word: string; limit: number }>();
            expectTypeOf(host).toEqualTypeOf<QueryHost>();
            expectTypeOf<keyof typeof host>().toEqualTypeOf<
              (typeof SNAPSHOT | typeof CATALOG | typeof PROCESSES | typeof TRIGGERS)[number]
            >();
            // @ts-expect-error a query reads
            await host.createSession();
            // @ts-expect-error a query reads
            await host.setToolMembership("s", ["shell"], false);
            return state.notes.slice(0, options.max);
          },
        },
      },
      commands: {
        "notes.ask": {
          description: "d",
          input: z.object({ about: z.string() }),
          async run({ about }, { host, signal, sessionId }) {
            expectTypeOf(host).toEqualTypeOf<PluginActionHost>();
            expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
            expectTypeOf(sessionId).toEqualTypeOf<string | undefined>();
            const answer = await host.directCompletion({ messages: [{ role: "user", text: about }] }, "notes");
            expectTypeOf(answer).toEqualTypeOf<DirectCompletion>();
            return { output: answer.text, events: [{ name: "asked" }], directives: [queueTurn(about)] };
          },
        },
        "notes.silent": {
          description: "d",
          input: z.object({}),
          // @ts-expect-error a command says what it came to: { output }
          run: async () => {},
        },
      },
      tasks: {
        "notes.index": {
          description: "d",
          input: { type: "object" },
          run(args, { host }) {
            expectTypeOf(args).toEqualTypeOf<JsonObject>();
            expectTypeOf(host).toEqualTypeOf<PluginActionHost>();
            return { output: null };
          },
        },
      },
      actions: {
        "notes.count": {
          description: "d",
          input: z.object({ word: z.string() }),
          acts: "command",
          session: "required",
          run({ word }, { host, state }) {
            expectTypeOf(word).toEqualTypeOf<string>();
            expectTypeOf(host).toEqualTypeOf<PluginActionHost>();
            return state.notes.filter((note) => note.includes(word)).length;
          },
        },
        "notes.lost": {
          description: "d",
          input: z.object({}),
          // @ts-expect-error an action acts as a query or a command
          acts: "task",
          run: () => null,
        },
      },
    });
  });

  it("keep their schemas and what their functions return in the plugin's type, and the plugin its id", () => {
    const plugin = definePlugin({
      ...base,
      state: () => ({ notes: ["a"] }),
      queries: {
        "notes.list": { description: "d", input: z.object({}), run: async (_args, { state }) => state.notes },
      },
      tasks: { "notes.index": { description: "d", input: { type: "object" }, run: () => ({ output: 7 }) } },
      hooks: { beforeTurn: () => undefined },
    });
    expectTypeOf(plugin.id).toEqualTypeOf<"acme.test">();
    expectTypeOf(plugin.queries["notes.list"].run).returns.toEqualTypeOf<Promise<string[]>>();
    expectTypeOf(plugin.tasks["notes.index"].run).returns.toEqualTypeOf<{ output: number }>();
    expectTypeOf(plugin.tasks["notes.index"].input).toEqualTypeOf<{ readonly type: "object" }>();
    expectTypeOf(plugin.hooks).toBeNullable();
    // @ts-expect-error the plugin declares no commands
    expect(plugin.commands).toBeUndefined();
    expect(plugin.queries["notes.list"].description).toBe("d");
  });

  it("do not compile with a field an operation does not have", () => {
    definePlugin({
      ...base,
      // @ts-expect-error a plugin has no such field
      querys: {},
    });
    definePlugin({
      ...base,
      queries: {
        "notes.list": {
          description: "d",
          input: z.object({}),
          // @ts-expect-error only an action says how it is called
          acts: "query",
          run: () => 1,
        },
      },
    });
  });

  it("are given at run time what their types say", () => {
    const methods = (kind: keyof typeof OPERATION_HOSTS) =>
      Object.keys(hostFacade(OPERATION_HOSTS[kind], () => Promise.resolve())).sort();
    expect(methods("query")).toEqual([...SNAPSHOT, ...CATALOG, ...PROCESSES, ...TRIGGERS].sort());
    for (const kind of ["command", "task", "action"] as const) expect(methods(kind)).toEqual([...EVERYTHING].sort());
  });
});

describe("the tools of a plugin", () => {
  it("have the host services, the state and the options", () => {
    definePlugin({
      ...base,
      options: z.object({ unit: z.string() }),
      state: () => ({ calls: 0 }),
      tools: {
        delegate: {
          description: "Has another session do it.",
          inputSchema: z.object({ task: z.string() }),
          id: "acme.delegate",
          onDemand: true,
          async execute({ task }, { host, state, options, sessionId, turnId }) {
            expectTypeOf(host).toEqualTypeOf<ToolHookHost>();
            expectTypeOf<keyof typeof host>().toEqualTypeOf<(typeof EVERYTHING)[number]>();
            expectTypeOf({ state, options }).toEqualTypeOf<{ state: { calls: number }; options: { unit: string } }>();
            expectTypeOf({ sessionId, turnId }).toEqualTypeOf<{ sessionId: string; turnId: string }>();
            const child = await host.createSession({ firstTurnInput: task });
            return (await host.startTurn(child.sessionId, task)).text;
          },
        },
        wrong: {
          description: "d",
          inputSchema: z.object({}),
          // @ts-expect-error an id is a text
          id: 7,
          execute: () => null,
        },
      },
    });
  });
});

describe("the register form", () => {
  it("types hooks by their names, and the session by its options", () => {
    definePlugin({
      ...base,
      options: z.object({ max: z.number(), label: z.string().default("budget") }),
      state: () => ({ calls: 0 }),
      register(registrar, context) {
        expectTypeOf(context.options).toEqualTypeOf<{ max: number; label: string }>();
        expectTypeOf(context.sessionId).toEqualTypeOf<string>();
        expectTypeOf(context.parentSessionId).toEqualTypeOf<string | undefined>();
        expectTypeOf(context.isRootSession).toEqualTypeOf<boolean>();
        expectTypeOf(context.pluginOptions).toEqualTypeOf<PluginOptions>();
        expectTypeOf(context.subagent).toEqualTypeOf<SubagentContext | undefined>();
        expectTypeOf(context.extensions).toEqualTypeOf<Extensions>();
        expectTypeOf(context.toolAccess.tools).toEqualTypeOf<readonly ToolSpec[] | undefined>();
        registrar.hook("beforeToolCall", ({ call, state, options, host }) => {
          expectTypeOf(host).toEqualTypeOf<ToolHookHost>();
          if (++state.calls > options.max) return deny("budget", call.toolName);
          return undefined;
        });
        registrar.hook("beforeToolCall", { tools: ["shell"], run: () => [emitTrace("shell"), replaceToolArgs({})] });
        registrar.hook("turnContextTransform", { priority: 5, run: ({ prepared }) => prepared });
        registrar.hook("afterTurn", async ({ turn, host }) => {
          expectTypeOf(turn.text).toEqualTypeOf<string>();
          await host.createSession();
          // @ts-expect-error as in the declared form
          await host.snapshotCurrent();
        });
        // @ts-expect-error there is no such hook
        registrar.hook("beforeEverything", () => undefined);
        // @ts-expect-error there are no arguments before a turn
        registrar.hook("beforeTurn", () => replaceToolArgs({}));
        // @ts-expect-error sessions hand over by frames
        registrar.hook("beforeTurn", () => ({ kind: "handoff_session", sessionId: "other" }));
        // @ts-expect-error only hooks around tool calls can name tools
        registrar.hook("beforeTurn", { tools: ["shell"], run: () => undefined });
      },
    });
  });

  it("infers arguments of tools and operations", () => {
    definePlugin({
      ...base,
      state: () => ({ notes: ["a"] }),
      register(registrar) {
        registrar.tool("weather", {
          description: "d",
          inputSchema: z.object({ city: z.string() }),
          execute({ city }, { state, host }) {
            expectTypeOf(city).toEqualTypeOf<string>();
            expectTypeOf(state).toEqualTypeOf<{ notes: string[] }>();
            expectTypeOf(host).toEqualTypeOf<ToolHookHost>();
          },
        });
        registrar.query("notes.list", {
          description: "d",
          input: z.object({ tag: z.string() }),
          run({ tag }, { host }) {
            expectTypeOf(tag).toEqualTypeOf<string>();
            expectTypeOf(host).toEqualTypeOf<QueryHost>();
          },
        });
        registrar.command("notes.add", {
          description: "d",
          input: z.object({ text: z.string() }),
          run: ({ text }, { state }) => ({ output: state.notes.push(text) }),
        });
        registrar.task("notes.index", {
          description: "d",
          input: z.object({}),
          // @ts-expect-error a task says what it came to
          run: () => 42,
        });
        registrar.action("notes.count", {
          description: "d",
          input: z.object({}),
          run: (_args, { state }) => state.notes.length,
        });
        registrar.trigger({ resourceType: "mail", alias: "inbox", event: "received", payloadSchema: z.object({}) });
        // @ts-expect-error an event has a name
        registrar.trigger({ resourceType: "mail", alias: "inbox" });
      },
    });
  });

  it("returns what the plugin keeps for itself", () => {
    let calls = 0n;
    const own: SessionPlugin = {
      snapshotRevision: () => calls,
      snapshot: (writer) => {
        expectTypeOf(writer.writeBlob).parameters.toEqualTypeOf<[name: string, data: Uint8Array]>();
        return { calls: String(calls) };
      },
      restore(meta, reader) {
        expectTypeOf(meta).toEqualTypeOf<SnapshotMeta>();
        expectTypeOf(meta.state).toEqualTypeOf<Json | undefined>();
        expectTypeOf(meta.revision).toEqualTypeOf<bigint>();
        expectTypeOf(reader.readBlob("big")).toEqualTypeOf<Uint8Array | undefined>();
        calls = meta.revision;
      },
      sessionReady({ sessionId }) {
        expectTypeOf(sessionId).toEqualTypeOf<string>();
      },
    };
    definePlugin({ ...base, register: () => own });
    definePlugin({ ...base, register: () => {} });
    definePlugin({
      ...base,
      // @ts-expect-error a snapshot is plain data
      register: () => ({ snapshot: () => () => 1 }),
    });
    definePlugin({
      ...base,
      // @ts-expect-error everything is registered at once
      register: async () => ({ snapshotRevision: () => 1 }),
    });
  });
});

describe("a protocol", () => {
  it("has typed pieces, each of them optional", () => {
    const codeExecutor: CodeExecutor = {
      async executeCode({ callTool, host, signal, sessionId, turnId }, { language, code, acceptFinish }) {
        expectTypeOf({ language, code }).toEqualTypeOf<{ language: string; code: string }>();
        expectTypeOf(acceptFinish).toEqualTypeOf<boolean>();
        expectTypeOf(host).toEqualTypeOf<PluginActionHost>();
        expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
        expectTypeOf({ sessionId, turnId }).toEqualTypeOf<{ sessionId: string; turnId: string }>();
        const output = await callTool("look", { city: "Oslo" });
        expectTypeOf(output).toEqualTypeOf<ToolOutput>();
        return { observations: [output.status], terminalFinish: { value: 4 } };
      },
      executionStateDirty: () => true,
      snapshotExecutionState: () => new Uint8Array(),
      restoreExecutionState(_context, state) {
        expectTypeOf(state).toEqualTypeOf<Uint8Array>();
      },
    };
    definePlugin({
      ...base,
      options: z.object({ language: z.string() }),
      protocol: ({ sessionId, options }) => {
        expectTypeOf(sessionId).toEqualTypeOf<string>();
        expectTypeOf(options).toEqualTypeOf<{ language: string }>();
        return {
          codeExecutor,
          session: {
            configureOnMaterialize(context, { pluginOptions, isRootSession }) {
              expectTypeOf(context.turnOptions).toEqualTypeOf<ProtocolTurnOptions | undefined>();
              expectTypeOf(pluginOptions).toEqualTypeOf<PluginOptions>();
              expectTypeOf(isRootSession).toEqualTypeOf<boolean>();
              context.setTurnOptions({ schemaVersion: 1, payload: { format: "raw" } });
              // @ts-expect-error options have a schema version
              context.setTurnOptionsAllFrames({ payload: null });
            },
            beforeLlmCall(context) {
              expectTypeOf(context).toEqualTypeOf<BeforeLlmCallContext>();
              expectTypeOf(context.latestUsage).toEqualTypeOf<Usage | undefined>();
              expectTypeOf(context.messages).toEqualTypeOf<readonly Message[]>();
              return context.step === 0
                ? null
                : { kind: "switch_agent_frame", frameId: "f2", task: "Go on.", initialNodes: [] as AppendNode[] };
            },
            restoreSession(_context, state) {
              expectTypeOf(state).toEqualTypeOf<SessionView>();
            },
            appendSessionNodes(_context, nodes) {
              expectTypeOf(nodes).toEqualTypeOf<readonly AppendNode[]>();
            },
            applySessionExtension(_context, extension) {
              expectTypeOf(extension).toEqualTypeOf<Json>();
            },
          },
          driver: {
            buildPreamble({ tools, extensions, triggers, turnOptions }): Preamble {
              expectTypeOf(tools).toEqualTypeOf<readonly ToolSpec[]>();
              expectTypeOf(extensions).toEqualTypeOf<Extensions>();
              expectTypeOf(triggers[0]?.alias).toEqualTypeOf<string | undefined>();
              expectTypeOf(turnOptions).toEqualTypeOf<ProtocolTurnOptions | undefined>();
              return {
                toolSpecs: [],
                executionPrompt: "Write code.",
                promptContributions: [{ slot: "execution", content: "x" }],
                syncExecutionEnvironment: true,
                interpret(response) {
                  expectTypeOf(response).toEqualTypeOf<ModelResponse>();
                  return { kind: "code", language: options.language, code: "1 + 1" };
                },
              };
            },
          },
        };
      },
    });
    definePlugin({ ...base, protocol: { codeExecutor } });
    expectTypeOf<ExecutionContext["callTool"]>().returns.resolves.toEqualTypeOf<ToolOutput>();
  });

  it("does not compile with pieces that are none", () => {
    definePlugin({
      ...base,
      protocol: {
        session: {
          // @ts-expect-error a frame switch says what is to be done there
          beforeLlmCall: () => ({ kind: "switch_agent_frame", frameId: "f2" }),
        },
      },
    });
    definePlugin({
      ...base,
      protocol: {
        driver: {
          buildPreamble: () => ({
            toolSpecs: [],
            executionPrompt: "",
            promptContributions: [],
            syncExecutionEnvironment: false,
            // @ts-expect-error there is no such step
            interpret: () => ({ kind: "dance" }),
          }),
        },
      },
    });
    definePlugin({
      ...base,
      // @ts-expect-error a protocol has no such piece
      protocol: { projector: (text: string) => text },
    });
    definePlugin({
      ...base,
      protocol: {
        codeExecutor: {
          // @ts-expect-error what the model reads is a list of texts
          executeCode: () => ({ observations: "42" }),
        },
      },
    });
  });
});

describe("options, triggers and extensions", () => {
  it("are typed from the schema", () => {
    const plugin = definePlugin({
      ...base,
      options: z.object({ folder: z.string() }),
      extensions: (options) => {
        expectTypeOf(options).toEqualTypeOf<{ folder: string }>();
        return [{ extensionId: "acme.folders", payload: options.folder }];
      },
      triggers: [{ resourceType: "mail", alias: "inbox", event: "received" }],
      migrate: (state, fromVersion) => {
        expectTypeOf(state).toEqualTypeOf<unknown>();
        expectTypeOf(fromVersion).toEqualTypeOf<string>();
        return { n: 1 };
      },
      state: () => ({ n: 0 }),
    });
    expect(typeof plugin.extensions).toBe("function");
    definePlugin({
      ...base,
      // @ts-expect-error a payload is plain data
      extensions: [{ extensionId: "acme.folders", payload: () => 1 }],
    });
    definePlugin({
      ...base,
      state: () => ({ n: 0 }),
      // @ts-expect-error it migrates to this version's state
      migrate: () => ({ count: 1 }),
    });
  });

  it("with JSON Schema are an object", () => {
    definePlugin({
      ...base,
      options: { type: "object", properties: { n: { type: "number" } } },
      hooks: {
        beforeTurn({ options }) {
          expectTypeOf(options).toEqualTypeOf<JsonObject>();
        },
      },
    });
  });
});
