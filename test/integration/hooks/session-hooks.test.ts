import { createTroupe, type Session, type Troupe, type TroupeError, type TroupeOptions } from "troupe";
import { HOOK_KINDS } from "troupe/plugin";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DEFAULT_CONFIG } from "../../../src/kernel/index.js";
import {
  collect,
  EMPTY_OBJECT,
  firstToolValue,
  fixture,
  plugin,
  RESIDENT,
  refusalOf,
  registers,
  remembering,
  startTroupe,
} from "../../support/runtime.js";

const FIRST = "test.first";
const SECOND = "test.second";
const tool = (value: string) => ({ description: "d", inputSchema: EMPTY_OBJECT, execute: () => value });
const model = fixture("models/obeys.mjs");
const USAGE = { inputTokens: 10, outputTokens: 5, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 };

/** A hook as registers.mjs is told to register it; see pieces.mjs. */
interface WantedHook {
  readonly name: string;
  readonly label?: string;
  readonly priority?: number;
  readonly tools?: readonly string[];
  readonly from?: number;
  readonly once?: boolean;
  readonly gives?: unknown;
  readonly appends?: string;
  readonly fails?: string;
  readonly rejects?: string;
}
interface Wanted {
  readonly hooks?: readonly WantedHook[];
  readonly tools?: readonly {
    readonly name: string;
    readonly id?: string;
    readonly onDemand?: boolean;
    readonly drops?: readonly string[];
  }[];
}
type Facts = Record<string, unknown>;

const causeOf = (error: TroupeError) => (error.cause as TroupeError | undefined)?.code;
/** What the model was asked, as it says itself. */
const asked = async (session: Session, input = "hi") => JSON.parse((await session.turn(input)).text);
const abort = (code: string) => ({ kind: "abort_turn", code, message: `Because of ${code}.` });
const enqueue = (text: string) => ({ kind: "enqueue_messages", messages: [{ role: "system", text }] });

describe.each(["worker", "inline"] as const)("hooks of a session, in the tier %s", (tier) => {
  const options: TroupeOptions = {
    sessionWorkers: 1,
    plugins: [
      remembering(registers(FIRST), { tier }),
      remembering(registers(SECOND), { tier }),
      remembering(plugin("meets"), { tier }),
    ],
    tools: { dig: tool("dug"), echo: tool("of the host"), fetch: tool("fetched"), shout: tool("shouted") },
    model,
    instructions: "Host.",
    maxContextTokens: 1_000,
    drainMs: 500,
  };
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe(options);
  });
  afterAll(() => troupe.close());

  /** Opens a session for which the first and the second plugin register this. */
  const open = (id: string, first: Wanted = {}, second: Wanted = {}, on = troupe): Promise<Session> =>
    on.session(id, { pluginOptions: { [FIRST]: first as never, [SECOND]: second as never } });
  const withHooks = (id: string, ...hooks: WantedHook[]) => open(id, { hooks });
  const calls = (session: Session, pluginId = FIRST) => session.query<[string, Facts][]>(`${pluginId}.calls`);
  const labels = async (session: Session, pluginId = FIRST) => (await calls(session, pluginId)).map(([label]) => label);

  describe("before the turn", () => {
    // §15.18 turn §8.24
    test("a message and an abort in one answer: the model is not called, the message is stored", async () => {
      const session = await withHooks("abort", {
        name: "beforeTurn",
        once: true,
        gives: [enqueue("We close at six."), abort("closed")],
      });
      const result = await session.turn("one");
      expect(result.outcome).toEqual({
        type: "stopped",
        reason: "plugin_abort",
        code: "closed",
        message: "Because of closed.",
      });
      expect(result.issues).toEqual([
        { kind: "plugin", code: "closed", message: "Because of closed.", pluginId: FIRST },
      ]);
      expect([result.modelCalls, result.revision]).toEqual([0, 1]);
      expect((await asked(session, "two")).conversation).toEqual([
        ["user", "one"],
        ["system", "We close at six."],
        ["user", "two"],
      ]);
    });

    // §15.19
    test("of two aborts the last is told, and what comes behind an abort still counts", async () => {
      const session = await open(
        "aborts",
        { hooks: [{ name: "beforeTurn", once: true, gives: [abort("first"), enqueue("after the first")] }] },
        { hooks: [{ name: "beforeTurn", once: true, gives: [abort("second"), enqueue("after the second")] }] },
      );
      const result = await session.turn("one");
      expect(result.outcome).toMatchObject({ reason: "plugin_abort", code: "second" });
      expect(result.issues.map(({ pluginId }) => pluginId)).toEqual([SECOND]);
      expect((await asked(session, "two")).conversation.slice(1, 3)).toEqual([
        ["system", "after the first"],
        ["system", "after the second"],
      ]);
    });

    // §15.20
    test.each([
      { kind: "replace_tool_args", args: {} },
      { kind: "short_circuit_tool", output: { status: "success", value: 1 } },
      { kind: "handoff_session", sessionId: "other" },
    ])("$kind is refused, with the turn", async (directive) => {
      const session = await withHooks(directive.kind, { name: "beforeTurn", gives: directive });
      const error = await refusalOf(session.turn("hi"));
      expect([error.code, causeOf(error)]).toEqual(["plugin_prepare_turn", "directive_not_allowed"]);
      expect(await session.info()).toMatchObject({ turns: 0, revision: 0 });
    });
  });

  // §15.24 (that host input waiting for the turn stays claimable comes with the input queue)
  test("an abort at a checkpoint ends the turn with the plugin's code, and is stored with what it said", async () => {
    const session = await withHooks("checkpoint", {
      name: "checkpoint",
      once: true,
      gives: [enqueue("That was enough."), abort("enough")],
    });
    const result = await session.turn("call echo\nsay never");
    expect(result.outcome).toMatchObject({ type: "stopped", reason: "plugin_abort", code: "enough" });
    expect([result.modelCalls, result.toolCalls.length, result.revision]).toEqual([1, 1, 1]);
    expect((await asked(session)).conversation.map(([role]: [string]) => role)).toEqual([
      "user",
      "assistant",
      "tool",
      "system",
      "user",
    ]);
  });

  // §15.17
  test("a contribution for a tool leaves the prompt with the tool", async () => {
    const contribution = { slot: "guidance", content: "Dig deep.", tools: ["dig"] };
    const hooks = [{ name: "promptContributor", gives: contribution }];
    expect((await asked(await open("gate open", { hooks }))).system).toBe("Host.\n\n## Guidance\n\nDig deep.");
    const closing = { hooks: [{ name: "toolCatalogContributor", gives: { remove: ["dig"] } }] };
    expect((await asked(await open("gate closed", { hooks }, closing))).system).toBe("Host.");
  });

  // §15.29 (running only the hook again comes with the journal) turn §8.82
  test("a response hook that fails leaves the completion paid: its usage is counted and the turn stored", async () => {
    const session = await withHooks("paid", { name: "assistantResponse", once: true, fails: "no" });
    const result = await session.turn("say something");
    expect(result.outcome).toMatchObject({ reason: "provider_error", code: "plugin_assistant_response" });
    expect([result.usage, result.modelCalls, result.revision]).toEqual([USAGE, 1, 1]);
    expect((await session.view()).usage).toEqual(USAGE);
    expect((await session.turn("say again")).text).toBe("again");
    expect((await session.view()).usage).toEqual({ ...USAGE, inputTokens: 20, outputTokens: 10 });
  });

  // §15.30
  // turn §8.67
  test("a tool result projector's words are for the model: hooks, events and the record have the result itself", async () => {
    const session = await withHooks(
      "projected",
      { name: "toolResultProjector", gives: "in short" },
      { name: "afterTurn" },
      { name: "turnFinalized" },
      { name: "turnPersisted" },
    );
    const turn = session.turn("call echo");
    const activities = await collect(turn);
    const raw = { status: "success", value: "of the host" };
    const result = await turn;
    expect(JSON.parse(result.text).conversation.at(-1)).toEqual(["tool", "in short"]);
    expect(result.toolCalls[0]?.output).toEqual(raw);
    expect(activities.find(({ type }) => type === "tool_call_finished")).toMatchObject({ output: raw });
    for (const [label, facts] of (await calls(session)).slice(1)) {
      expect([label, facts.turn]).toEqual([
        label,
        expect.objectContaining({ toolCalls: [expect.objectContaining({ output: raw })] }),
      ]);
    }
  });

  describe("the prose projector", () => {
    test("changes text that was not streamed, for the host and the record, and sees no other", async () => {
      const session = await withHooks("prose", { name: "proseProjector", gives: "Smooth words." });
      const turn = session.turn("whole Rough words.");
      const said = (await collect(turn)).flatMap((activity) => (activity.type === "text_delta" ? activity.text : []));
      expect([said, (await turn).text]).toEqual([["Smooth words."], "Smooth words."]);
      expect((await session.turn("say streamed|words")).text).toBe("streamedwords");
      const seen = await calls(session);
      expect(seen).toEqual([
        ["proseProjector", expect.objectContaining({ text: "Rough words.", step: 0, turnIndex: 1 })],
      ]);
      expect((await asked(session)).conversation[1]).toEqual(["assistant", "Smooth words."]);
    });

    test("that fails fails the model call, which stays paid", async () => {
      const session = await withHooks("rough prose", { name: "proseProjector", fails: "no" });
      const result = await session.turn("whole words");
      expect(result.outcome).toMatchObject({ reason: "provider_error", code: "plugin_prose_projector" });
      expect([result.usage, result.modelCalls]).toEqual([USAGE, 1]);
    });
  });

  // §15.31
  describe("a change of the configuration", () => {
    const before = { ...DEFAULT_CONFIG, instructions: "Host.", maxContextTokens: 1_000 };

    test("is told once, as it was and as it is, and stored", async () => {
      const session = await withHooks("config", { name: "sessionConfigMutator" }, { name: "sessionConfigChanged" });
      const config = { ...before, maxSteps: 3, metadata: { colour: "red" } };
      expect(await session.configure({ maxSteps: 3, metadata: { colour: "red" } })).toEqual({
        config,
        changed: true,
        issues: [],
      });
      expect(await calls(session)).toEqual([
        ["sessionConfigMutator", { sessionId: "config", previous: before, current: config, config }],
        ["sessionConfigChanged", { sessionId: "config", previous: before, current: config }],
      ]);
      expect((await session.view()).config).toEqual(config);
      await session.close();
      expect((await (await open("config")).view()).config).toEqual(config);
    });

    test("that changes nothing asks and tells nobody", async () => {
      const session = await withHooks("no change", { name: "sessionConfigMutator" }, { name: "sessionConfigChanged" });
      expect(await session.configure({ maxSteps: 32, metadata: {} })).toEqual({
        config: before,
        changed: false,
        issues: [],
      });
      expect(await session.configure({})).toMatchObject({ changed: false });
      expect([await calls(session), (await session.info()).revision]).toEqual([[], 0]);
    });

    test("passes through the mutators in order; all see what was asked for, the event has what came of it", async () => {
      const session = await open(
        "mutators",
        {
          hooks: [
            { name: "sessionConfigMutator", label: "steps", gives: { maxSteps: 7 } },
            { name: "sessionConfigMutator", label: "words", gives: { instructions: "Mutated." } },
          ],
        },
        { hooks: [{ name: "sessionConfigMutator", gives: { maxSteps: 9 } }, { name: "sessionConfigChanged" }] },
      );
      const { config } = await session.configure({ maxSteps: 5 });
      expect(config).toEqual({ ...before, maxSteps: 9, instructions: "Mutated." });
      const steps = async (pluginId: string) =>
        (await calls(session, pluginId)).map(([label, facts]) => {
          const { current, config: made } = facts as { current: { maxSteps: number }; config?: { maxSteps: number } };
          return [label, current.maxSteps, made?.maxSteps];
        });
      expect(await steps(FIRST)).toEqual([
        ["steps", 5, 5],
        ["words", 5, 7],
      ]);
      expect(await steps(SECOND)).toEqual([
        ["sessionConfigMutator", 5, 7],
        ["sessionConfigChanged", 9, undefined],
      ]);
      expect((await asked(session)).system).toBe("Mutated.");
    });

    test("that the mutators take back is none", async () => {
      const session = await withHooks(
        "taken back",
        { name: "sessionConfigMutator", gives: { maxSteps: 32 } },
        { name: "sessionConfigChanged" },
      );
      expect(await session.configure({ maxSteps: 5 })).toEqual({ config: before, changed: false, issues: [] });
      expect(await labels(session)).toEqual(["sessionConfigMutator"]);
    });

    test.each([
      ["throws", { fails: "no" }],
      ["rejects", { rejects: "no" }],
      ["answers with no settings", { gives: 42 }],
      ["answers with settings that cannot be", { gives: { maxSteps: 0 } }],
    ])("passes over a mutator that %s, and says whose it was", async (what, does) => {
      const session = await open(
        `mutator ${what}`,
        { hooks: [{ name: "sessionConfigMutator", ...does }] },
        { hooks: [{ name: "sessionConfigMutator", gives: { instructions: "Still." } }] },
      );
      const { config, changed, issues } = await session.configure({ maxSteps: 5 });
      expect([config, changed]).toEqual([{ ...before, maxSteps: 5, instructions: "Still." }, true]);
      expect(issues.map(({ kind, code, pluginId }) => [kind, code, pluginId])).toEqual([
        ["plugin", "config_mutator_failed", FIRST],
      ]);
    });

    test("stands when somebody who is told of it fails", async () => {
      const session = await withHooks("told in vain", { name: "sessionConfigChanged", fails: "no" });
      const { config, changed, issues } = await session.configure({ maxSteps: 5 });
      expect([config.maxSteps, changed]).toEqual([5, true]);
      expect(issues).toEqual([
        { kind: "plugin", code: "lifecycle_hook_failed", message: "sessionConfigChanged: no", pluginId: FIRST },
      ]);
    });

    test("that cannot be is refused and asks nobody", async () => {
      const session = await withHooks("impossible", { name: "sessionConfigMutator" });
      expect((await refusalOf(session.configure({ maxSteps: 0 }))).code).toBe("invalid_config");
      expect((await refusalOf(session.configure({ colour: "red" } as never))).code).toBe("invalid_config");
      expect(await calls(session)).toEqual([]);
    });
  });

  // §15.32 turn §8.90
  test("lifecycle hooks run at the same time; one that fails stops no other and undoes nothing", async () => {
    const session = await troupe.session("meet");
    const result = await session.turn("say hello");
    expect([result.outcome, result.revision]).toEqual([{ type: "finished", text: "hello" }, 1]);
    expect(result.issues).toEqual([
      { kind: "plugin", code: "lifecycle_hook_failed", message: "turnFinalized: never mind", pluginId: "test.meets" },
      { kind: "plugin", code: "lifecycle_hook_failed", message: "turnPersisted: never mind", pluginId: "test.meets" },
    ]);
    const { changed, issues } = await session.configure({ maxSteps: 5 });
    expect([changed, issues.map(({ message }) => message)]).toEqual([true, ["sessionConfigChanged: never mind"]]);
    await session.close();
    expect(await (await troupe.session("meet")).view()).toMatchObject({ turnIndex: 1, config: { maxSteps: 5 } });
  });

  // §15.33
  describe("context transforms", () => {
    const transform = (entry: Omit<WantedHook, "name">): WantedHook => ({ name: "turnContextTransform", ...entry });

    test("run by priority, the highest first, equals in the order they were registered; each gets what the one before left", async () => {
      const session = await open(
        "transforms",
        {
          hooks: [
            transform({ appends: "first, plain" }),
            transform({ priority: 5, appends: "first, high" }),
            transform({ priority: -1, appends: "first, low" }),
          ],
        },
        { hooks: [transform({ priority: 5, appends: "second, high" }), transform({ appends: "second, plain" })] },
      );
      expect((await asked(session)).conversation).toEqual([
        ["system", "first, high"],
        ["system", "second, high"],
        ["system", "first, plain"],
        ["system", "second, plain"],
        ["system", "first, low"],
        ["user", "hi"],
      ]);
      // Made for one turn: the history has none of it.
      expect((await session.view()).messageCount).toBe(2);
    });

    // turn §8.48
    test("are told how much there is, and make a context of places in it and of messages of their own", async () => {
      const talk = await open("talk");
      for (const word of ["one", "two"]) await talk.turn(`say ${word}`);
      await talk.close();
      const gives = {
        messages: [
          { role: "system", text: "Before: one." },
          { from: 2, to: 4 },
          { role: "assistant", text: "Yes?" },
        ],
        promptContributions: [{ slot: "guidance", content: "Only in this turn." }],
      };
      const session = await open("talk", { hooks: [transform({ once: true, gives }), transform({ label: "next" })] });
      expect(await asked(session)).toMatchObject({
        system: "Host.\n\n## Guidance\n\nOnly in this turn.",
        conversation: [
          ["system", "Before: one."],
          ["user", "say two"],
          ["assistant", "two"],
          ["assistant", "Yes?"],
          ["user", "hi"],
        ],
      });
      const [[, told], [, next]] = (await calls(session)) as [[string, Facts], [string, Facts]];
      expect(told).toEqual({
        sessionId: "talk",
        turnId: "t3",
        turnIndex: 3,
        input: "hi",
        pluginInput: null,
        messageCount: 4,
        promptTokens: null,
        maxContextTokens: 1_000,
        prepared: { messages: [{ from: 0, to: 4 }], promptContributions: [], tools: [], includeBaseTools: true },
      });
      expect(next.prepared).toEqual({ ...gives, tools: [], includeBaseTools: true });
      // The next turn has the whole conversation again, and nothing of what was made for this one.
      const { system, conversation } = await asked(session, "more");
      expect([system, conversation.length, conversation[0]]).toEqual(["Host.", 7, ["user", "say one"]]);
      expect((await calls(session))[2]?.[1]).toMatchObject({ messageCount: 6, promptTokens: 10 });
    });

    test("contribute to the prompt before the prompt's own contributors", async () => {
      const guidance = (content: string) => ({ slot: "guidance", content });
      const session = await withHooks(
        "contributions",
        { name: "promptContributor", gives: guidance("Of a contributor.") },
        transform({ gives: { promptContributions: [guidance("Of the context."), guidance("Of a contributor.")] } }),
      );
      expect((await asked(session)).system).toBe("Host.\n\n## Guidance\n\nOf the context.\n\nOf a contributor.");
    });

    test("may leave the model nothing but the turn itself", async () => {
      const talk = await open("forgetful");
      await talk.turn("say one");
      await talk.close();
      const session = await open("forgetful", { hooks: [transform({ gives: { messages: [] } })] });
      expect((await asked(session)).conversation).toEqual([["user", "hi"]]);
      expect((await session.view()).messageCount).toBe(4);
    });

    const onDemand = [
      { name: "echo", id: "deep-echo", onDemand: true },
      { name: "rare", onDemand: true },
    ];

    // turn §8.55
    test("bring in tools on demand, for their turn; those stand before tools of the same name", async () => {
      const gives = { tools: ["deep-echo", "rare"] };
      const session = await open("on demand", { tools: onDemand, hooks: [transform({ once: true, gives })] });
      const result = await session.turn("call echo");
      expect(firstToolValue(result)).toBe(FIRST);
      expect(JSON.parse(result.text).tools).toEqual(["dig", "echo", "fetch", "rare", "shout"]);
      const next = await session.turn("call echo");
      expect(firstToolValue(next)).toBe("of the host");
      expect(JSON.parse(next.text).tools).toEqual(["dig", "echo", "fetch", "shout"]);
      expect(firstToolValue(await session.turn("call rare"))).toBe("tool_unavailable");
    });

    test("may leave the session's own tools out", async () => {
      const gives = { tools: ["deep-echo"], includeBaseTools: false };
      const session = await open("only", { tools: onDemand, hooks: [transform({ gives })] });
      expect((await asked(session)).tools).toEqual(["echo"]);
      expect(firstToolValue(await session.turn("call dig"))).toBe("tool_unavailable");
      const none = await withHooks("nothing", transform({ gives: { includeBaseTools: false } }));
      expect((await asked(none)).tools).toEqual([]);
    });

    test.each([
      ["throws", { fails: "no" }, "hook_failed"],
      ["rejects", { rejects: "no" }, "hook_failed"],
      ["answers with no context", { gives: 42 }, "invalid_hook_answer"],
      ["names messages that are not there", { gives: { messages: [{ from: 0, to: 9 }] } }, "invalid_context"],
      ["writes messages nobody can read", { gives: { messages: [{ role: "tool", text: "x" }] } }, "invalid_context"],
      ["names a tool nobody has", { gives: { tools: ["nowhere"] } }, "tool_unknown"],
      ["contributes to no slot", { gives: { promptContributions: [{ content: "x" }] } }, "invalid_hook_answer"],
    ])("one that %s refuses the turn; nothing is stored and the next turn works", async (what, does, cause) => {
      const session = await withHooks(
        `transform ${what}`,
        transform({ once: true, ...does }),
        transform({ label: "behind it" }),
        { name: "beforeTurn" },
      );
      const error = await refusalOf(session.turn("hi"));
      expect([error.code, causeOf(error)]).toEqual(["context_prepare_turn", cause]);
      expect(await session.info()).toMatchObject({ turns: 0, revision: 0 });
      expect(await labels(session)).not.toContain("beforeTurn");
      expect((await asked(session)).tools).toEqual(["dig", "echo", "fetch", "shout"]);
    });
  });

  // §15.34
  describe("compactors", () => {
    const compactor = (label: string, entry: Partial<WantedHook> = {}): WantedHook => ({
      name: "contextCompactor",
      label,
      ...entry,
    });
    const message = (text: string) => ({ kind: "message", message: { role: "user", text } });

    test("are asked by priority until one has something: a new frame begins with it, the old one is kept", async () => {
      const session = await open(
        "compacted",
        {
          hooks: [
            compactor("plain", { gives: { initialNodes: [message("not asked")] } }),
            compactor("empty", { priority: 10, gives: { initialNodes: [] } }),
            compactor("nothing", { priority: 20 }),
          ],
        },
        {
          hooks: [
            compactor("has it", {
              priority: 5,
              gives: { initialNodes: [message("So far: one."), { kind: "plugin", pluginType: "note", body: 1 }] },
            }),
          ],
        },
      );
      await session.turn("say one");
      expect(await session.compact({ instructions: "Be brief." })).toBe(true);
      expect([await labels(session), await labels(session, SECOND)]).toEqual([["nothing", "empty"], ["has it"]]);
      expect((await calls(session, SECOND))[0]?.[1]).toEqual({
        sessionId: "compacted",
        turnIndex: 1,
        messageCount: 2,
        maxContextTokens: 1_000,
        instructions: "Be brief.",
      });
      const compacted = {
        frameId: "frame-2",
        frames: [{ frameId: "main", reason: "compaction", leaf: "compacted@1.1" }],
        messageCount: 1,
        turnIndex: 1,
        revision: 2,
      };
      expect(await session.view()).toMatchObject(compacted);
      await session.close();
      const reopened = await open("compacted");
      expect(await reopened.view()).toMatchObject(compacted);
      expect((await asked(reopened)).conversation).toEqual([
        ["user", "So far: one."],
        ["user", "hi"],
      ]);
    });

    test("may compact again and again, each time into a frame of its own", async () => {
      const session = await withHooks(
        "frames",
        compactor("always", { gives: { initialNodes: [message("A summary.")] } }),
      );
      expect([await session.compact(), await session.compact()]).toEqual([true, true]);
      expect(await session.view()).toMatchObject({
        frameId: "frame-2",
        frames: [
          { frameId: "main", leaf: null },
          { frameId: "frame-1", leaf: "frames@1.0" },
        ],
        messageCount: 1,
      });
    });

    test("that have nothing change nothing, and so does having none", async () => {
      const session = await withHooks(
        "uncompacted",
        compactor("nothing"),
        compactor("empty", { gives: { initialNodes: [] } }),
      );
      await session.turn("say one");
      expect(await session.compact()).toBe(false);
      expect(await labels(session)).toEqual(["nothing", "empty"]);
      expect((await calls(session))[0]?.[1]).toMatchObject({ instructions: null });
      expect(await session.view()).toMatchObject({ frameId: "main", frames: [], revision: 1 });
      expect(await (await open("without compactors")).compact()).toBe(false);
    });

    test.each([
      ["throws", { fails: "no" }, "hook_failed"],
      ["answers with no nodes", { gives: 42 }, "invalid_hook_answer"],
      ["answers with nodes that cannot be", { gives: { initialNodes: [{ kind: "song" }] } }, "invalid_nodes"],
    ])("one that %s ends it: the others are not asked and nothing is written", async (what, does, cause) => {
      const session = await withHooks(
        `compactor ${what}`,
        compactor("bad", does),
        compactor("behind it", { gives: { initialNodes: [message("x")] } }),
      );
      const error = await refusalOf(session.compact());
      expect([error.code, causeOf(error)]).toEqual(["plugin_compact", cause]);
      expect(await labels(session)).toEqual(["bad"]);
      expect(await session.view()).toMatchObject({ frameId: "main", revision: 0 });
    });
  });

  // §15.35
  test("contributors, the overlay and the authority all take tools away, and nobody gives back what the authority hides", async () => {
    const contribution = {
      remove: ["fetch", "no such tool"],
      overrides: [
        { toolName: "shout", availability: "searchable" },
        { toolName: "dig", availability: "showcased" },
      ],
    };
    const first = {
      tools: [{ name: "extra" }, { name: "gone" }],
      hooks: [
        { name: "toolCatalogContributor", gives: contribution },
        { name: "turnContextTransform", gives: { tools: ["dig", "gone"] } },
        { name: "beforeToolCall" },
      ],
    };
    const parent = await open("catalog parent");
    const child = await parent.fork({
      id: "catalog child",
      authority: { hiddenTools: ["dig"], pluginOptions: { [FIRST]: first } as never },
      catalog: { remove: ["gone"] },
    });
    expect((await asked(child)).tools).toEqual(["echo", "extra"]);
    const [, facts] = (await calls(child)).find(([label]) => label === "toolCatalogContributor") as [string, Facts];
    // The authority's hides are not even in what contributors see; they are told of them.
    expect(facts).toMatchObject({ tools: ["echo", "extra", "fetch", "shout"], hiddenTools: ["dig"] });
    for (const name of ["dig", "gone", "fetch", "shout"]) {
      expect([name, firstToolValue(await child.turn(`call ${name}`))]).toEqual([name, "tool_unavailable"]);
    }
    expect(firstToolValue(await child.turn("call extra"))).toBe(FIRST);
    // Only the tool that could be called came to a hook.
    expect((await labels(child)).filter((label) => label === "beforeToolCall")).toHaveLength(1);
  });

  test("several hooks of one kind of one plugin are each asked, in the order they were registered", async () => {
    const contributor = (label: string) => ({
      name: "promptContributor",
      label,
      gives: { slot: "guidance", content: label },
    });
    const event = (name: string) => ({ kind: "emit_events", events: [{ name }] });
    const session = await open(
      "several",
      {
        hooks: [
          contributor("one"),
          { name: "beforeTurn", gives: event("first") },
          contributor("two"),
          { name: "beforeToolCall", label: "for dig", tools: ["dig"] },
          { name: "beforeToolCall", label: "for echo", tools: ["echo"] },
          { name: "beforeToolCall", label: "for all" },
          { name: "beforeTurn", gives: event("second") },
        ],
      },
      { hooks: [contributor("three")] },
    );
    const turn = session.turn("call echo");
    const activities = await collect(turn);
    expect(JSON.parse((await turn).text).system).toBe("Host.\n\n## Guidance\n\none\n\ntwo\n\nthree");
    const told = activities.flatMap((activity) => (activity.type === "plugin_event" ? activity.event.name : []));
    expect(told).toEqual(["first", "second"]);
    expect(await labels(session)).toEqual(["beforeTurn", "beforeTurn", "one", "two", "for echo", "for all"]);
  });

  describe("a catalog contributor", () => {
    test("is asked again when tools, overlay, frame or session are others, and only then", async () => {
      const hooks = [
        { name: "toolCatalogContributor", gives: { remove: ["shout"] } },
        { name: "contextCompactor", gives: { initialNodes: [] }, once: true },
        {
          name: "contextCompactor",
          gives: { initialNodes: [{ kind: "message", message: { role: "user", text: "So far." } }] },
        },
      ];
      // A session that is opened again makes its catalog anew.
      const session = await open("contributes", { hooks }, {}, await startTroupe({ ...options, ...RESIDENT }));
      const times = async () => (await labels(session)).filter((label) => label === "toolCatalogContributor").length;
      const turn = async () => [(await asked(session)).tools, await times()];
      expect(await turn()).toEqual([["dig", "echo", "fetch"], 1]);
      expect(await turn()).toEqual([["dig", "echo", "fetch"], 1]);
      // Two model calls and a tool in between.
      await session.turn("call echo");
      expect(await times()).toBe(1);
      await session.command(`${FIRST}.membership`, { names: ["dig"], present: false });
      expect(await turn()).toEqual([["echo", "fetch"], 2]);
      expect(await turn()).toEqual([["echo", "fetch"], 2]);
      await session.configure({ maxSteps: 3 });
      expect(await turn()).toEqual([["echo", "fetch"], 2]);
      expect(await session.compact()).toBe(true);
      expect(await turn()).toEqual([["echo", "fetch"], 3]);
      expect(await turn()).toEqual([["echo", "fetch"], 3]);
    });

    test("is asked again in a turn with another overlay, and not for one that it knows", async () => {
      const contributes = {
        tools: [{ name: "rare", onDemand: true }],
        hooks: [
          { name: "turnContextTransform", once: true, gives: { tools: ["rare"] } },
          { name: "toolCatalogContributor" },
        ],
      };
      // As above: what was made is kept in memory.
      const session = await open("overlays", contributes, {}, await startTroupe({ ...options, ...RESIDENT }));
      const times = async () => (await labels(session)).filter((label) => label === "toolCatalogContributor").length;
      expect((await asked(session)).tools).toContain("rare");
      expect(await times()).toBe(1);
      expect((await asked(session)).tools).not.toContain("rare");
      expect(await times()).toBe(2);
      await asked(session);
      expect(await times()).toBe(2);
    });

    // turn §8.7
    test("is asked again in the middle of a turn whose tools change", async () => {
      const changing = { tools: [{ name: "drop", drops: ["dig"] }], hooks: [{ name: "toolCatalogContributor" }] };
      const session = await open("changes", changing);
      expect(JSON.parse((await session.turn("call drop")).text).tools).toEqual(["drop", "echo", "fetch", "shout"]);
      expect(await labels(session)).toEqual(["toolCatalogContributor", "toolCatalogContributor"]);
    });

    test("that fails in the middle of a turn stops it before the model is called again", async () => {
      const session = await open("breaks", {
        tools: [{ name: "drop", drops: ["dig"] }],
        hooks: [{ name: "toolCatalogContributor", from: 2, once: true, fails: "no" }, { name: "streamFinished" }],
      });
      const result = await session.turn("call drop\nsay never");
      expect(result.outcome).toMatchObject({ reason: "runtime_error", code: "plugin_prompt" });
      expect([result.modelCalls, result.revision]).toEqual([1, 1]);
      // A model call that was never begun has not ended either.
      expect((await labels(session)).filter((label) => label === "streamFinished")).toHaveLength(1);
      expect((await asked(session)).tools).toEqual(["drop", "echo", "fetch", "shout"]);
    });
  });

  // §15.36
  test.each([["fails"], ["rejects"]] as const)("every call of a hook that %s is measured, once", async (way) => {
    const measured: Record<string, number> = {};
    for (const name of Object.keys(HOOK_KINDS) as (keyof typeof HOOK_KINDS)[]) {
      const phase = `plugin_hook.${HOOK_KINDS[name]}.${FIRST}`;
      const count = async () => (await troupe.stats()).hooks[phase]?.count ?? 0;
      const before = await count();
      try {
        const session = await withHooks(`${name} ${way}`, { name, [way]: "no" });
        await Promise.allSettled([
          session.turn(name === "proseProjector" ? "whole x" : "call echo\nsay x"),
          session.configure({ maxSteps: 5 }),
          session.compact(),
        ]);
      } catch (error) {
        expect((error as TroupeError).code).toBe("session_restore_failed");
      }
      measured[name] = (await count()) - before;
    }
    expect(measured).toEqual({
      turnContextTransform: 1,
      beforeTurn: 1,
      toolCatalogContributor: 1,
      promptContributor: 1,
      assistantStream: 1,
      assistantResponse: 1,
      proseProjector: 1,
      // Its failure ends nothing: it is told of both model calls.
      streamFinished: 2,
      beforeToolCall: 1,
      afterToolCall: 1,
      toolResultProjector: 1,
      checkpoint: 1,
      afterTurn: 1,
      turnFinalized: 1,
      turnPersisted: 1,
      sessionRestored: 1,
      sessionConfigMutator: 1,
      sessionConfigChanged: 1,
      contextCompactor: 1,
    });
  });
});

describe.each(["worker", "inline"] as const)("a model call's stream and a plugin in the tier %s", (tier) => {
  // §15.26 §15.27 §15.28
  test("is told to have ended, however it did; so the next response begins afresh, and what it cost is counted", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, plugins: [remembering(plugin("numbers"), { tier })], model });
    const session = await troupe.session("s");
    const stateOf = () => session.query<{ ends: string[]; responses: number }>("numbers.state");

    const first = await session.turn("say a|b");
    expect(first.outcome).toEqual({ type: "finished", text: "0:a1:b" });
    // Its streamFinished hook failed, which is an issue of the turn and not its end.
    expect(first.issues.map(({ code }) => code)).toEqual(["lifecycle_hook_failed"]);

    const cancelled = session.turn("say x|<hang>");
    for await (const { type } of cancelled) if (type === "text_delta") cancelled.cancel("Enough.");
    expect((await cancelled).outcome).toMatchObject({ reason: "cancelled" });
    expect((await session.turn("say y")).text).toBe("0:y");

    expect((await session.turn("say z|<fail>")).outcome).toMatchObject({
      reason: "provider_error",
      code: "model_failed",
    });
    expect((await session.turn("say y")).text).toBe("0:y");

    const aborted = session.turn("say stop|never said");
    const activities = await collect(aborted);
    expect(await aborted).toMatchObject({ outcome: { type: "finished", text: "stopped" }, usage: USAGE });
    expect(activities.find(({ type }) => type === "model_call_finished")).toMatchObject({
      reason: "stop",
      usage: USAGE,
    });

    const broken = await session.turn("say boom");
    expect(broken.outcome).toMatchObject({ reason: "provider_error", code: "plugin_assistant_stream" });
    expect((await session.turn("say y")).text).toBe("0:y");

    expect((await stateOf()).ends).toEqual([
      "complete",
      "cancelled",
      "complete",
      "provider_error",
      "complete",
      "aborted",
      "provider_error",
      "complete",
    ]);
    // Response hooks saw every answer there was, the one that was cut short too.
    expect((await stateOf()).responses).toBe(5);
  });
});

test.each(["worker", "inline"] as const)(
  "what the slower of two afterTurn hooks changes is stored with the turn, when both are asked at once in the tier %s",
  async (tier) => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      hookDispatch: "concurrent",
      plugins: [remembering(plugin("two-after-turns"), { tier })],
    });
    const session = await troupe.session("s");
    await session.turn("hi");
    // Not asked anything before: whoever is asked is captured once more.
    await session.close();
    expect(await (await troupe.session("s")).query("two.state")).toEqual({ slow: 1, quick: 1 });
  },
);
