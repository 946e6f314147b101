import { createTroupe, type Message, type Session, type TraceEvent, type Troupe, type TroupeError } from "troupe";
import {
  abortTurn,
  createSession,
  type Directive,
  deny,
  emitEvents,
  emitTrace,
  enqueueMessages,
  replaceToolArgs,
  shortCircuitTool,
} from "troupe/plugin";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { untimed } from "../../support/activities.js";
import {
  collect,
  firstToolValue,
  oneToolCall,
  openSessions,
  plugin,
  refusalOf,
  startTroupe,
} from "../../support/runtime.js";

/** What the plugins of `directs-*.mjs` are told by a turn's input. */
type Rules = Record<string, Record<string, readonly { when?: string; give?: readonly Directive[]; fail?: string }[]>>;

const SITES = ["beforeTurn", "checkpoint", "afterTurn", "beforeToolCall", "afterToolCall"] as const;
type Site = (typeof SITES)[number];
const KINDS = [
  "abort_turn",
  "enqueue_messages",
  "create_session",
  "handoff_session",
  "replace_tool_args",
  "short_circuit_tool",
  "emit_events",
  "emit_trace",
] as const;

const echo = {
  description: "Says its argument",
  inputSchema: { type: "object", properties: { value: { type: "string" } }, required: ["value"] },
  execute: (args: unknown) => (args as { value: string }).value,
} as const;

/** The rules of one plugin at one site; at a checkpoint the one after the tool call. */
const at = (site: Site, ...give: Directive[]): Rules => ({
  "test.a": { [site]: [{ give, ...(site === "checkpoint" && { when: "after_work" }) }] },
});
const turnOf = (session: Session, rules: Rules) => session.turn(JSON.stringify(rules));

describe.each(["worker", "inline"] as const)("directives of a plugin in the tier %s", (tier) => {
  let troupe: Troupe;
  const traces: TraceEvent[] = [];
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 2,
      instructions: "Host words.",
      plugins: [
        { module: plugin("directs-a"), tier },
        { module: plugin("directs-b"), tier },
      ],
      tools: { echo },
      model: oneToolCall("echo", { value: "original" }),
      onTrace: (event) => traces.push(event),
    });
  });
  afterAll(() => troupe.close());

  const tracesOf = (sessionId: string) => traces.filter(({ context }) => context.sessionId === sessionId);
  const exists = async (id: string) => (await (await troupe.session(id)).info()).revision > 0;
  const messagesOf = (session: Session) => session.query<Message[]>("test.a.messages");

  describe("where they are allowed", () => {
    const FINISHED = ["finished", "tool original"];
    const PREPARE = ["refused plugin_prepare_turn: directive_not_allowed"];
    const CHECKPOINT = ["stopped runtime_error: plugin_checkpoint", "tool original"];
    const FINALIZE = ["refused plugin_finalize_turn: directive_not_allowed"];
    const DENIED = ["finished", "tool directive_not_allowed", "event beside"];
    const ABORTED = "stopped plugin_abort: stop_it";

    /** What comes of each directive at each site, given together with an event called "beside". */
    const MATRIX: Record<Site, Record<(typeof KINDS)[number], string[]>> = {
      beforeTurn: {
        abort_turn: [ABORTED, "event beside"],
        enqueue_messages: [...FINISHED, "event beside", "message of test.a"],
        create_session: [...FINISHED, "event beside", "child"],
        handoff_session: PREPARE,
        replace_tool_args: PREPARE,
        short_circuit_tool: PREPARE,
        emit_events: [...FINISHED, "event said", "event beside"],
        emit_trace: [...FINISHED, "event beside", "trace plugin.test.a.traced"],
      },
      checkpoint: {
        abort_turn: [ABORTED, "tool original", "event beside"],
        enqueue_messages: [...FINISHED, "event beside", "message of test.a"],
        create_session: [...FINISHED, "event beside", "child"],
        handoff_session: CHECKPOINT,
        replace_tool_args: CHECKPOINT,
        short_circuit_tool: CHECKPOINT,
        emit_events: [...FINISHED, "event said", "event beside"],
        emit_trace: [...FINISHED, "event beside", "trace plugin.test.a.traced"],
      },
      afterTurn: {
        abort_turn: FINALIZE,
        enqueue_messages: [...FINISHED, "event beside", "message of test.a"],
        create_session: [...FINISHED, "event beside", "child"],
        handoff_session: FINALIZE,
        replace_tool_args: FINALIZE,
        short_circuit_tool: FINALIZE,
        emit_events: [...FINISHED, "event said", "event beside"],
        emit_trace: [...FINISHED, "event beside", "trace plugin.test.a.traced"],
      },
      beforeToolCall: {
        abort_turn: [ABORTED, "tool stop_it", "event beside"],
        enqueue_messages: DENIED,
        create_session: [...FINISHED, "event beside", "child"],
        handoff_session: DENIED,
        replace_tool_args: ["finished", "tool replaced", "event beside"],
        short_circuit_tool: ["finished", "tool short", "event beside"],
        emit_events: [...FINISHED, "event said", "event beside"],
        emit_trace: [...FINISHED, "event beside", "trace plugin.test.a.traced"],
      },
      afterToolCall: {
        abort_turn: [ABORTED, "tool stop_it", "event beside"],
        enqueue_messages: [...FINISHED, "event beside", "message of test.a"],
        create_session: [...FINISHED, "event beside", "child"],
        handoff_session: DENIED,
        replace_tool_args: DENIED,
        short_circuit_tool: ["finished", "tool short", "event beside"],
        emit_events: [...FINISHED, "event said", "event beside"],
        emit_trace: [...FINISHED, "event beside", "trace plugin.test.a.traced"],
      },
    };

    const directive = (kind: (typeof KINDS)[number], childId: string): Directive =>
      ({
        abort_turn: abortTurn("stop_it", "Stop."),
        enqueue_messages: enqueueMessages({ role: "user", text: "by the plugin" }),
        create_session: createSession({ sessionId: childId }),
        handoff_session: { kind: "handoff_session", sessionId: childId } as const,
        replace_tool_args: replaceToolArgs({ value: "replaced" }),
        short_circuit_tool: shortCircuitTool("short"),
        emit_events: emitEvents({ name: "said" }),
        emit_trace: emitTrace("traced"),
      })[kind];

    async function observe(id: string, rules: Rules): Promise<string[]> {
      const session = await troupe.session(id);
      const turn = turnOf(session, rules);
      const events: string[] = [];
      const happened: string[] = [];
      try {
        for await (const activity of turn)
          if (activity.type === "plugin_event") events.push(`event ${activity.event.name}`);
        const result = await turn;
        const { outcome } = result;
        happened.push(
          outcome.type === "stopped" ? `stopped ${outcome.reason}: ${outcome.code}` : outcome.type,
          ...result.toolCalls.map(() => `tool ${firstToolValue(result)}`),
        );
      } catch (error) {
        const { code, cause } = error as TroupeError;
        happened.push(`refused ${code}: ${(cause as TroupeError).code}`);
      }
      happened.push(...events);
      for (const { origin } of await messagesOf(session))
        if (origin?.kind === "plugin") happened.push(`message of ${origin.pluginId}`);
      for (const { name } of tracesOf(id)) happened.push(`trace ${name}`);
      if (await exists(`${id}:child`)) happened.push("child");
      return happened;
    }

    const cells = SITES.flatMap((site) => KINDS.map((kind) => [kind, site] as const));
    // §15.20 §15.21 §15.51
    test.each(cells)("%s from %s does what the table says, and so does what was said beside it", async (kind, site) => {
      const id = `matrix:${site}:${kind}`;
      const rules = at(site, directive(kind, `${id}:child`), emitEvents({ name: "beside" }));
      expect(await observe(id, rules)).toEqual(MATRIX[site][kind]);
    });

    test("the whole answer of a hook outside tool calls is refused before any of it is done", async () => {
      for (const site of ["beforeTurn", "checkpoint", "afterTurn"] as const) {
        const id = `whole:${site}`;
        const happened = await observe(
          id,
          at(site, createSession({ sessionId: `${id}:child` }), emitTrace("traced"), replaceToolArgs({})),
        );
        expect(happened).toEqual({ beforeTurn: PREPARE, checkpoint: CHECKPOINT, afterTurn: FINALIZE }[site]);
      }
    });

    test("an assistant message after a tool call denies that call, and what was said beside it counts", async () => {
      const assistant = { kind: "enqueue_messages", messages: [{ role: "assistant", text: "I am the model" }] };
      const id = "assistant";
      expect(await observe(id, at("afterToolCall", assistant as never, emitEvents({ name: "beside" })))).toEqual(
        DENIED,
      );
    });
  });

  describe("createSession", () => {
    const request = (sessionId: string) =>
      ({
        sessionId,
        config: { instructions: "Look closely.", metadata: { purpose: "review" } },
        initialNodes: [
          { kind: "message", message: { role: "system", text: "You review." } },
          { kind: "plugin", pluginType: "note", body: { of: "test.a" } },
          { kind: "message", message: { role: "user", text: "Here is the text." } },
        ],
        firstTurnInput: "Review it.",
        authority: { hiddenTools: ["echo"], subagent: { capability: "review", depth: 1, maxDepth: 2 } },
      }) as const;

    test.each(SITES)("from %s makes the child that was asked for and does not start it", async (site) => {
      const id = `create:${site}`;
      const childId = `${id}:child`;
      const parent = await troupe.session(id);
      const result = await turnOf(parent, at(site, createSession(request(childId))));
      expect(result.outcome).toEqual({ type: "finished", text: "Result: original" });
      const child = await troupe.session(childId);
      expect(await child.info()).toMatchObject({ id: childId, parent: id, turns: 0, revision: 1 });
      expect(await child.view()).toMatchObject({
        parentSessionId: id,
        config: {
          instructions: "Look closely.",
          maxSteps: 32,
          maxContextTokens: null,
          metadata: { purpose: "review" },
        },
        turnIndex: 0,
        messageCount: 2,
        leafNodeId: `${childId}@1.2`,
      });
      expect(untimed(await messagesOf(child))).toEqual([
        {
          id: `${childId}@1.0`,
          role: "system",
          parts: [{ type: "text", text: "You review." }],
          origin: { kind: "creator", sessionId: id },
        },
        {
          id: `${childId}@1.2`,
          role: "user",
          parts: [{ type: "text", text: "Here is the text." }],
          origin: { kind: "creator", sessionId: id },
        },
      ]);
      expect((await child.command("test.a.first")).output).toBe("Review it.");
      expect((await child.command("test.a.first")).output).toBe(null);
      // What its authority hides it cannot call, and its plugins are told why.
      expect(firstToolValue(await child.turn("go"))).toBe("tool_unavailable");
      expect(await child.query("test.a.seen")).toContainEqual([
        "toolCatalogContributor",
        { hiddenTools: ["echo"], subagent: { capability: "review", depth: 1, maxDepth: 2 } },
      ]);
      expect(firstToolValue(await parent.turn("and you?"))).toBe("original");
    });

    test("without anything said makes an empty child with the parent's settings and a name of its own", async () => {
      const parent = await troupe.session("bare");
      await parent.configure({ instructions: "Parent words." });
      const before = await openSessions(troupe);
      await turnOf(parent, at("afterTurn", createSession()));
      expect(await openSessions(troupe)).toBe(before + 1);
      await turnOf(parent, at("afterTurn", createSession({ sessionId: "bare:named" })));
      const child = await troupe.session("bare:named");
      expect(await child.view()).toMatchObject({
        parentSessionId: "bare",
        config: { instructions: "Parent words." },
        messageCount: 0,
        leafNodeId: null,
        turnIndex: 0,
      });
      expect((await child.command("test.a.first")).output).toBe(null);
    });

    test("of another relation, from where its creator is, has the creator's history and no parent", async () => {
      const parent = await troupe.session("origin");
      await parent.turn("one");
      await turnOf(
        parent,
        at("beforeTurn", createSession({ sessionId: "own", relation: "root", start: { kind: "current_session" } })),
      );
      const root = await troupe.session("own");
      expect(await root.info()).toEqual(expect.not.objectContaining({ parent: expect.anything() }));
      // Of the last stored turn: the one that was running is not in it.
      expect((await root.view()).turnIndex).toBe(1);
      expect((await messagesOf(root)).map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
    });

    test("with another plugin's options is refused and makes no child, and with its creator's own it does", async () => {
      const parent = await troupe.session("widens");
      const make = (pluginId: string) => {
        const request = {
          sessionId: `widens:${pluginId}`,
          authority: { pluginOptions: { [pluginId]: { off: true } } },
        };
        return turnOf(parent, at("beforeTurn", createSession(request)));
      };
      const { cause } = await refusalOf(make("test.b"));
      expect(cause).toMatchObject({ code: "plugin_session_create_failed", cause: { code: "authority_widened" } });
      expect((await make("test.a")).outcome.type).toBe("finished");
      expect([await exists("widens:test.a"), await exists("widens:test.b")]).toEqual([true, false]);
    });

    test("that fails before a turn refuses the turn; what was made before it stays", async () => {
      const session = await troupe.session("taken:beforeTurn");
      const rules = at(
        "beforeTurn",
        createSession({ sessionId: "taken:beforeTurn:first" }),
        createSession({ sessionId: "taken:beforeTurn" }),
        createSession({ sessionId: "taken:beforeTurn:second" }),
      );
      const error = await refusalOf(turnOf(session, rules));
      expect([error.code, (error.cause as TroupeError).code]).toEqual([
        "plugin_prepare_turn",
        "plugin_session_create_failed",
      ]);
      expect((error.cause as TroupeError).details).toMatchObject({ pluginId: "test.a" });
      expect(await exists("taken:beforeTurn:first")).toBe(true);
      expect(await exists("taken:beforeTurn:second")).toBe(false);
      expect((await session.turn("again")).turnIndex).toBe(1);
    });

    test("that fails at a checkpoint stops the turn, which is stored with the plugin's name", async () => {
      const session = await troupe.session("taken:checkpoint");
      const result = await turnOf(session, at("checkpoint", createSession({ sessionId: "taken:checkpoint" })));
      expect(result.outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "plugin_checkpoint" });
      expect(result.issues).toEqual([
        {
          kind: "plugin",
          code: "plugin_checkpoint",
          message:
            "Plugin test.a could not create a session: There already is a session taken:checkpoint. Open it, or choose another id.",
          pluginId: "test.a",
        },
      ]);
      expect(result.revision).toBe(1);
    });

    test("that fails after a turn refuses the turn, and nothing of it is stored", async () => {
      const session = await troupe.session("taken:afterTurn");
      const error = await refusalOf(turnOf(session, at("afterTurn", createSession({ sessionId: "taken:afterTurn" }))));
      expect([error.code, (error.cause as TroupeError).code]).toEqual([
        "plugin_finalize_turn",
        "plugin_session_create_failed",
      ]);
      expect((await session.turn("again")).revision).toBe(1);
    });

    // §15.52
    test.each(["beforeToolCall", "afterToolCall"] as const)(
      "that fails in %s denies the call, and what the plugins say after it is still done",
      async (site) => {
        const id = `taken:${site}`;
        const session = await troupe.session(id);
        const turn = turnOf(session, {
          "test.a": {
            [site]: [
              {
                give: [
                  createSession({ sessionId: id }),
                  emitEvents({ name: "after it" }),
                  emitTrace("after it"),
                  createSession({ sessionId: `${id}:child` }),
                ],
              },
            ],
          },
          "test.b": { [site]: [{ give: [emitEvents({ name: "of another" }), emitTrace("of another")] }] },
        });
        const activities = await collect(turn);
        expect((await turn).outcome.type).toBe("finished");
        expect((await turn).toolCalls[0]?.output).toEqual({
          status: "failure",
          failure: {
            kind: "internal",
            code: "plugin_session_create_failed",
            message: `Plugin test.a could not create a session: There already is a session ${id}. Open it, or choose another id.`,
          },
        });
        expect(activities.flatMap((each) => (each.type === "plugin_event" ? [each.event.name] : []))).toEqual([
          "after it",
          "of another",
        ]);
        expect(tracesOf(id).map(({ name }) => name)).toEqual(["plugin.test.a.after it", "plugin.test.b.of another"]);
        expect(await exists(`${id}:child`)).toBe(true);
      },
    );

    test.each([
      ["an id that cannot be one", { sessionId: "" }],
      ["a session it cannot see as its start", { start: { kind: "existing_session", sessionId: "create:beforeTurn" } }],
      ["a start nobody knows", { start: { kind: "yesterday" } }],
      ["a relation nobody knows", { relation: "cousin" }],
      ["plugins from nowhere", { pluginSource: "stolen" }],
      ["settings that are none", { config: { maxSteps: 0 } }],
      ["a node that is none", { initialNodes: [{ kind: "message" }] }],
      ["a first input that is no text", { firstTurnInput: 7 }],
      ["hidden tools that are no list", { authority: { hiddenTools: "echo" } }],
      ["tools that are no list", { authority: { tools: "echo" } }],
      ["a plugin it cannot do without", { authority: { withoutPlugins: ["test.b"] } }],
      ["removals that are no list", { catalog: { remove: "echo" } }],
      ["a usage source that is no text", { usageSource: 7 }],
    ])("with %s fails and leaves no session behind", async (what, wrong) => {
      const session = await troupe.session(`wrong:${what}`.replaceAll(" ", "-"));
      const childId = `${session.id}:child`;
      const result = await turnOf(
        session,
        at("beforeToolCall", createSession({ sessionId: childId, ...(wrong as object) })),
      );
      expect(firstToolValue(result)).toBe("plugin_session_create_failed");
      expect(await exists(childId)).toBe(false);
    });
  });

  describe("emitTrace", () => {
    test("reaches the host in the plugin's name from every site, always with the session's own id", async () => {
      const session = await troupe.session("traced");
      const said = (site: Site) => emitTrace(site, { site }, { sessionId: "forged", span: "1" });
      await turnOf(session, {
        "test.a": Object.fromEntries(
          SITES.map((site) => [site, [{ give: [said(site)], ...(site === "checkpoint" && { when: "after_work" }) }]]),
        ),
        "test.b": { afterTurn: [{ give: [emitTrace("bare")] }] },
      });
      const event = (site: Site) => ({
        name: `plugin.test.a.${site}`,
        payload: { site },
        context: { sessionId: "traced", span: "1" },
      });
      expect(tracesOf("traced")).toEqual([
        event("beforeTurn"),
        event("beforeToolCall"),
        event("afterToolCall"),
        event("checkpoint"),
        event("afterTurn"),
        { name: "plugin.test.b.bare", payload: null, context: { sessionId: "traced" } },
      ]);
    });

    test("is done in a turn that is then aborted by the same hook", async () => {
      const session = await troupe.session("traced:abort");
      await turnOf(session, at("beforeTurn", abortTurn("no", "No."), emitTrace("still")));
      expect(tracesOf("traced:abort").map(({ name }) => name)).toEqual(["plugin.test.a.still"]);
    });
  });

  describe("conflicts", () => {
    const conflict = (site: string, pluginId: string, [winner, won]: string[], [ignored, lost]: string[]) => ({
      name: `plugin.${pluginId}.${site}.directive_conflict`,
      payload: { winner_plugin_id: winner, winner_directive: won, ignored_plugin_id: ignored, ignored_directive: lost },
    });
    const told = (activities: Awaited<ReturnType<typeof collect>>) =>
      activities.flatMap((each) =>
        each.type === "plugin_event"
          ? [{ name: `plugin.${each.pluginId}.${each.event.name}`, payload: each.event.payload }]
          : [],
      );

    // §15.44
    test.each([
      [
        "beforeToolCall",
        "before_tool_call",
        [deny("no", "No.")],
        [shortCircuitTool("yes")],
        ["test.a", "denied_short_circuit"],
        ["test.b", "successful_short_circuit"],
      ],
      [
        "beforeToolCall",
        "before_tool_call",
        [shortCircuitTool("yes")],
        [abortTurn("stop", "Stop.")],
        ["test.b", "abort_turn"],
        ["test.a", "successful_short_circuit"],
      ],
      [
        "afterToolCall",
        "after_tool_call",
        [deny("no", "No.")],
        [deny("neither", "No.")],
        ["test.a", "denied_short_circuit"],
        ["test.b", "denied_short_circuit"],
      ],
    ] as const)(
      "of two plugins in %s are traced once and told once, in the later one's name",
      async (site, kind, a, b, winner, ignored) => {
        const id = `conflict:${site}:${winner[1]}`;
        const turn = turnOf(await troupe.session(id), {
          "test.a": { [site]: [{ give: a }] },
          "test.b": { [site]: [{ give: b }] },
        });
        const activities = await collect(turn);
        const evidence = conflict(kind, "test.b", [...winner], [...ignored]);
        expect(tracesOf(id)).toEqual([{ ...evidence, context: { sessionId: id } }]);
        expect(told(activities)).toEqual([evidence]);
      },
    );

    // §15.44
    test("of a plugin with itself are nobody's business", async () => {
      const turn = turnOf(
        await troupe.session("conflict:self"),
        at("beforeToolCall", deny("no", "No."), shortCircuitTool("yes"), abortTurn("stop", "Stop.")),
      );
      expect(told(await collect(turn))).toEqual([]);
      expect(tracesOf("conflict:self")).toEqual([]);
    });

    // §15.51
    test("are told also when misuse displaces another plugin's answer", async () => {
      const id = "conflict:misuse";
      const turn = turnOf(await troupe.session(id), {
        "test.a": { beforeToolCall: [{ give: [shortCircuitTool("yes")] }] },
        "test.b": { beforeToolCall: [{ give: [enqueueMessages({ role: "user", text: "x" })] }] },
      });
      await collect(turn);
      expect(firstToolValue(await turn)).toBe("directive_not_allowed");
      expect(tracesOf(id).map(({ name, payload }) => ({ name, payload }))).toEqual([
        conflict(
          "before_tool_call",
          "test.b",
          ["test.b", "denied_short_circuit"],
          ["test.a", "successful_short_circuit"],
        ),
      ]);
    });
  });
});

describe("traces nobody listens to", () => {
  test("cost no message", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      plugins: [{ module: plugin("directs-a") }, { module: plugin("counter") }],
      model: oneToolCall("count"),
    });
    const session = await troupe.session("s");
    const rules: Rules = {
      "test.a": Object.fromEntries(SITES.map((site) => [site, [{ give: [emitTrace("unheard")] }]])),
    };
    await turnOf(session, {});
    const before = await troupe.stats();
    for (let turn = 0; turn < 5; turn++) await turnOf(session, {});
    const silent = await troupe.stats();
    for (let turn = 0; turn < 5; turn++) await turnOf(session, rules);
    const tracing = await troupe.stats();
    // One answer per turn, and nothing else.
    expect(silent.mainMessages.lane - before.mainMessages.lane).toBe(5);
    expect(tracing.mainMessages.lane - silent.mainMessages.lane).toBe(5);
    expect(tracing.hookMessages.sent - silent.hookMessages.sent).toBe(
      silent.hookMessages.sent - before.hookMessages.sent,
    );
  });
});
