import { describe, expect, it } from "vitest";
import { type ModelResponse, NO_USAGE } from "../../../src/kernel/index.js";
import {
  readCompaction,
  readConfigChange,
  readContributions,
  readOutcome,
  readRemovals,
  readResponseTransform,
  readStreamTransform,
} from "../../../src/session/plugins/read-answers.js";
import { ALLOWED, type DirectiveSite, readDirectives } from "../../../src/session/plugins/read-directives.js";

const refusal = (code: string, why: string) =>
  expect.objectContaining({ code, message: `Plugin p: ${why}.`, details: { pluginId: "p" } });

const abort = { kind: "abort_turn", code: "no", message: "No." };
const enqueue = { kind: "enqueue_messages", messages: [{ role: "user", text: "a" }] };
const replace = { kind: "replace_tool_args", args: null };
const short = { kind: "short_circuit_tool", output: { status: "success", value: 1 } };
const nextCall = { kind: "next_model_call", options: { temperature: 0 } };
const ask = { kind: "require_approval", demand: { announcement: "May I?" } };
const emit = { kind: "emit_events", events: [{ name: "e" }] };
const create = { kind: "create_session", request: {} };
const trace = { kind: "emit_trace", name: "t" };
const handoff = { kind: "handoff_session", sessionId: "other" };
/** As authors write them: the functions that make each kind, and the hooks they are for. */
const WRITTEN: Readonly<Record<string, readonly [as: string, sites: string]>> = {
  abort_turn: ["abortTurn", "beforeTurn and checkpoint and beforeToolCall and afterToolCall"],
  enqueue_messages: ["enqueueMessages", "beforeTurn and checkpoint and afterTurn and afterToolCall"],
  next_model_call: ["nextModelCall", "beforeTurn and checkpoint"],
  create_session: ["createSession", ""],
  replace_tool_args: ["replaceToolArgs", "beforeToolCall"],
  short_circuit_tool: ["shortCircuitTool", "beforeToolCall and afterToolCall"],
  require_approval: ["requireApproval", "beforeToolCall"],
  emit_events: ["emitEvents", ""],
  emit_trace: ["emitTrace", ""],
  handoff_session: ["handoff_session", ""],
};
const HOOKS: Readonly<Record<string, string>> = {
  before_turn: "beforeTurn",
  checkpoint: "checkpoint",
  after_turn: "afterTurn",
  before_tool_call: "beforeToolCall",
  after_tool_call: "afterToolCall",
};
const functionsOf = (kinds: readonly string[]) =>
  kinds.map((kind) => (kind === "short_circuit_tool" ? "deny, shortCircuitTool" : WRITTEN[kind]?.[0])).join(", ");
const notAllowed = (kind: string, site: string, allowed: readonly string[]) => {
  const [as, sites] = WRITTEN[kind] ?? [];
  return `${HOOKS[site]} cannot return ${as}${sites === "" ? "" : `, which is for ${sites}`}; it can return ${functionsOf(allowed)}`;
};
const NO_DIRECTIVE =
  "which is no directive. Return what abortTurn, enqueueMessages, nextModelCall, createSession, emitEvents, emitTrace give, a list of these, or nothing";

const DIRECTIVES = [abort, enqueue, nextCall, create, handoff, replace, short, ask, emit, trace];

describe("readDirectives", () => {
  it("reads nothing, one and many, each with its plugin", () => {
    expect(readDirectives(undefined, "before_turn", "p")).toEqual([]);
    expect(readDirectives(null, "before_turn", "p")).toEqual([]);
    expect(readDirectives([], "before_turn", "p")).toEqual([]);
    expect(readDirectives(abort, "before_turn", "p")).toEqual([{ pluginId: "p", value: abort }]);
    expect(readDirectives([emit, enqueue], "checkpoint", "p")).toEqual([
      { pluginId: "p", value: emit },
      { pluginId: "p", value: enqueue },
    ]);
  });

  it.each<[DirectiveSite, string[]]>([
    [
      "before_turn",
      ["abort_turn", "enqueue_messages", "next_model_call", "create_session", "emit_events", "emit_trace"],
    ],
    [
      "checkpoint",
      ["abort_turn", "enqueue_messages", "next_model_call", "create_session", "emit_events", "emit_trace"],
    ],
    ["after_turn", ["enqueue_messages", "create_session", "emit_events", "emit_trace"]],
  ])("takes at %s what is allowed there and refuses the rest", (site, allowed) => {
    expect(ALLOWED[site]).toEqual(allowed);
    for (const directive of DIRECTIVES) {
      if (allowed.includes(directive.kind)) expect(readDirectives(directive, site, "p")).toHaveLength(1);
      else {
        expect(() => readDirectives(directive, site, "p")).toThrow(
          refusal("directive_not_allowed", notAllowed(directive.kind, site, allowed)),
        );
      }
    }
  });

  it.each<[DirectiveSite, string[]]>([
    [
      "before_tool_call",
      [
        "abort_turn",
        "create_session",
        "replace_tool_args",
        "short_circuit_tool",
        "require_approval",
        "emit_events",
        "emit_trace",
      ],
    ],
    [
      "after_tool_call",
      ["abort_turn", "enqueue_messages", "create_session", "short_circuit_tool", "emit_events", "emit_trace"],
    ],
  ])("takes at %s what is allowed there; anything else denies the call", (site, allowed) => {
    expect(ALLOWED[site]).toEqual(allowed);
    for (const directive of DIRECTIVES) {
      if (allowed.includes(directive.kind)) {
        expect(readDirectives(directive, site, "p")).toEqual([{ pluginId: "p", value: directive }]);
        continue;
      }
      const message = `Plugin p: ${notAllowed(directive.kind, site, allowed)}.`;
      const failure = { kind: "internal", code: "directive_not_allowed", message };
      const value = { kind: "short_circuit_tool", output: { status: "failure", failure } };
      expect(readDirectives([emit, directive], site, "p")).toEqual([
        { pluginId: "p", value: emit },
        { pluginId: "p", value },
      ]);
    }
  });

  it("refuses the whole answer when one of its directives is not allowed", () => {
    expect(() => readDirectives([emit, replace], "before_turn", "p")).toThrow(
      expect.objectContaining({ code: "directive_not_allowed" }),
    );
  });

  it.each<[string, unknown, string]>([
    ["a string", "abort", `checkpoint returned a string, ${NO_DIRECTIVE}`],
    ["a list with a hole", [undefined], `checkpoint returned undefined, ${NO_DIRECTIVE}`],
    ["a number in a list", [abort, 7], `checkpoint returned a number, ${NO_DIRECTIVE}`],
    ["an object of no kind", {}, `checkpoint returned an empty object, ${NO_DIRECTIVE}`],
    [
      "a context that belongs elsewhere",
      { messages: [] },
      `checkpoint returned an object with messages, ${NO_DIRECTIVE}`,
    ],
    [
      "an unknown kind",
      { kind: "explode" },
      `checkpoint returned a directive explode, which there is not.${NO_DIRECTIVE.slice(NO_DIRECTIVE.indexOf(" Return"))}`,
    ],
    [
      "an abort without code",
      { kind: "abort_turn", message: "x" },
      "checkpoint returned abortTurn without what it needs: a code and a message",
    ],
    [
      "an abort without message",
      { kind: "abort_turn", code: "x" },
      "checkpoint returned abortTurn without what it needs: a code and a message",
    ],
    [
      "messages that are no list",
      { kind: "enqueue_messages", messages: "x" },
      "checkpoint returned enqueueMessages without what it needs: messages with a text",
    ],
    [
      "a message without text",
      { kind: "enqueue_messages", messages: [{ role: "user" }] },
      "an enqueued message needs a text",
    ],
    ["events that are no list", { kind: "emit_events" }, "events are a list of { name, payload? }"],
    ["an event without name", { kind: "emit_events", events: [{}] }, "events are a list of { name, payload? }"],
  ])("refuses %s", (_, answer, why) => {
    expect(() => readDirectives(answer, "checkpoint", "p")).toThrow(refusal("invalid_hook_answer", why));
  });

  it("refuses new arguments that are none", () => {
    expect(() => readDirectives({ kind: "replace_tool_args" }, "before_tool_call", "p")).toThrow(
      refusal("invalid_hook_answer", "beforeToolCall returned replaceToolArgs without what it needs: arguments"),
    );
  });

  it.each(["assistant", "tool", undefined])("refuses a message in the role of %s", (role) => {
    expect(() =>
      readDirectives({ kind: "enqueue_messages", messages: [{ role, text: "x" }] }, "before_turn", "p"),
    ).toThrow(refusal("directive_not_allowed", `only user and system messages can be enqueued, not ${role}`));
  });

  it("denies the call after which a plugin speaks for the model, and keeps what else was said", () => {
    const assistant = { kind: "enqueue_messages", messages: [{ role: "assistant", text: "x" }] };
    const message = "Plugin p: only user and system messages can be enqueued, not assistant.";
    const failure = { kind: "internal", code: "directive_not_allowed", message };
    expect(readDirectives([assistant, enqueue, emit], "after_tool_call", "p")).toEqual([
      { pluginId: "p", value: { kind: "short_circuit_tool", output: { status: "failure", failure } } },
      { pluginId: "p", value: enqueue },
      { pluginId: "p", value: emit },
    ]);
  });

  it.each<[string, unknown]>([
    ["a session without a request", { kind: "create_session" }],
    ["a request that is none", { kind: "create_session", request: "child" }],
    ["a trace without a name", { kind: "emit_trace" }],
    ["a trace with an empty name", { kind: "emit_trace", name: "" }],
    ["a trace whose context is a text", { kind: "emit_trace", name: "t", context: "of s" }],
  ])("refuses %s", (_, directive) => {
    const { kind } = directive as { kind: string };
    const needs = kind === "emit_trace" ? "a name" : "a request";
    expect(() => readDirectives(directive, "before_tool_call", "p")).toThrow(
      refusal("invalid_hook_answer", `beforeToolCall returned ${WRITTEN[kind]?.[0]} without what it needs: ${needs}`),
    );
  });

  it("takes every kind of tool output and no half of one", () => {
    const shortCircuit = (output: unknown) =>
      readDirectives({ kind: "short_circuit_tool", output }, "before_tool_call", "p");
    for (const output of [
      { status: "success", value: null },
      { status: "failure", failure: { kind: "internal", code: "c", message: "m" } },
      { status: "cancelled", message: "m" },
    ]) {
      expect(shortCircuit(output)).toHaveLength(1);
    }
    for (const output of [
      undefined,
      "text",
      {},
      { status: "success" },
      { status: "failure" },
      { status: "failure", failure: { code: "c" } },
      { status: "cancelled" },
      { status: "maybe", value: 1 },
    ]) {
      expect(() => shortCircuit(output)).toThrow(
        expect.objectContaining({
          code: "invalid_hook_answer",
          message: expect.stringMatching(
            /^Plugin p: beforeToolCall returned (deny|shortCircuitTool) without what it needs: a value that is plain data, or a code and a message\.$/,
          ),
        }),
      );
    }
  });
});

describe("readContributions", () => {
  it("reads nothing, one and many", () => {
    const one = { slot: "guidance", content: "Be kind." };
    expect(readContributions(undefined, "p")).toEqual([]);
    expect(readContributions(one, "p")).toEqual([one]);
    expect(readContributions([one, one], "p")).toEqual([one, one]);
  });

  it.each<[string, unknown]>([
    ["a string", "Be kind."],
    ["no content", { slot: "guidance" }],
    ["no slot", { content: "x" }],
    ["an unknown slot", { slot: "attic", content: "x" }],
    ["a slot named like a method of every array", { slot: "map", content: "x" }],
  ])("refuses %s", (_, answer) => {
    expect(() => readContributions(answer, "p")).toThrow(
      refusal(
        "invalid_hook_answer",
        "a prompt contribution needs content and a slot (intro, execution, guidance, project_instructions, runtime_context, environment)",
      ),
    );
  });
});

describe("readStreamTransform", () => {
  const plain = { reasoning: [], events: [], abortStream: false };

  it.each<[string, unknown, object]>([
    ["nothing as the chunk itself", undefined, { chunk: "in", ...plain }],
    ["null as the chunk itself", null, { chunk: "in", ...plain }],
    ["a string as the new chunk", "out", { chunk: "out", ...plain }],
    ["the empty string as no chunk", "", { chunk: "", ...plain }],
    ["an empty transform as the chunk itself", {}, { chunk: "in", ...plain }],
    [
      "a whole transform",
      { chunk: "out", reasoning: ["r"], events: [{ name: "e" }], abortStream: true },
      { chunk: "out", reasoning: ["r"], events: [{ name: "e" }], abortStream: true },
    ],
    ["abortStream only when it is true", { abortStream: "yes" }, { chunk: "in", ...plain }],
  ])("reads %s", (_, answer, transform) => {
    expect(readStreamTransform(answer, "in", "p")).toEqual(transform);
  });

  it.each<[string, unknown, string]>([
    ["a number", 7, "a stream hook returns a string, a transform or nothing"],
    ["a chunk that is no text", { chunk: 7 }, "chunk must be a string and reasoning a list of strings"],
    ["reasoning that is no list", { reasoning: "r" }, "chunk must be a string and reasoning a list of strings"],
    ["reasoning that is no text", { reasoning: [1] }, "chunk must be a string and reasoning a list of strings"],
    ["events that are none", { events: [{}] }, "events are a list of { name, payload? }"],
  ])("refuses %s", (_, answer, why) => {
    expect(() => readStreamTransform(answer, "in", "p")).toThrow(refusal("invalid_hook_answer", why));
  });
});

describe("readResponseTransform", () => {
  const response: ModelResponse = {
    parts: [{ type: "text", text: "a" }],
    reason: "stop",
    usage: { ...NO_USAGE, outputTokens: 5 },
  };

  it("reads nothing, and a transform without a response, as the response itself", () => {
    expect(readResponseTransform(undefined, response, "p")).toEqual({ response, events: [] });
    expect(readResponseTransform({ events: [{ name: "e" }] }, response, "p")).toEqual({
      response,
      events: [{ name: "e" }],
    });
  });

  it("takes new parts, but never new usage or a new reason", () => {
    const parts = [{ type: "text", text: "b" }];
    const answer = { response: { parts, reason: "length", usage: NO_USAGE } };
    expect(readResponseTransform(answer, response, "p").response).toEqual({
      parts,
      reason: "stop",
      usage: { ...NO_USAGE, outputTokens: 5 },
    });
  });

  it.each<[string, unknown, string]>([
    ["a string", "b", "a response hook returns { response?, events? } or nothing"],
    ["a response without parts", { response: {} }, "the response cannot be used: its parts must be a list"],
    [
      "parts that are none",
      { response: { parts: ["b"] } },
      "the response cannot be used: part 0 has no type that an answer can have (text, reasoning, tool_call, provider_tool_call, provider_tool_result, source, attachment, provider)",
    ],
    [
      "a part that is not whole",
      { response: { parts: [{ type: "text" }] } },
      "the response cannot be used: part 0 is no whole text",
    ],
    [
      "metadata that is none",
      { response: { parts: [{ type: "text", text: "b", metadata: { acme: 1 } }] } },
      "the response cannot be used: part 0 is no whole text",
    ],
    [
      "a part for the provider that it made up",
      { response: { parts: [{ type: "provider", data: { type: "custom" } }] } },
      "the response cannot be used: part 0 is a provider that the answer did not have: it can be kept or left out",
    ],
    ["events that are none", { events: 1 }, "events are a list of { name, payload? }"],
  ])("refuses %s", (_, answer, why) => {
    expect(() => readResponseTransform(answer, response, "p")).toThrow(refusal("invalid_hook_answer", why));
  });
});

describe("a hostile answer", () => {
  const refused = (why: string) => refusal("invalid_hook_answer", why);
  const endless = () => new Array(2 ** 32 - 1);
  const tooMany = "the answer has more than 200000 values";

  it("that only claims a length of 2^32-1 is refused by every reader without a look at its elements", () => {
    let looks = 0;
    const list = new Proxy(endless(), {
      get: (target, key) => {
        if (key !== "length") looks++;
        return Reflect.get(target, key);
      },
    });
    expect(() => readDirectives(list, "before_turn", "p")).toThrow(refused(tooMany));
    expect(() => readDirectives({ kind: "emit_events", events: list }, "before_turn", "p")).toThrow(refused(tooMany));
    expect(() => readContributions(list, "p")).toThrow(refused(tooMany));
    expect(() => readRemovals(list, "p")).toThrow(refused(tooMany));
    expect(() => readRemovals({ overrides: list }, "p")).toThrow(refused(tooMany));
    expect(() => readStreamTransform({ reasoning: list }, "", "p")).toThrow(refused(tooMany));
    expect(() => readResponseTransform({ response: { parts: list } }, {} as ModelResponse, "p")).toThrow(
      refused(tooMany),
    );
    expect(() => readCompaction({ initialNodes: list }, "p")).toThrow(refused(tooMany));
    expect(() => readConfigChange({ model: list }, "p")).toThrow(refused(tooMany));
    expect(() => readOutcome({ events: list }, "p")).toThrow(refusal("operation_failed", tooMany));
    expect(looks).toBe(0);
  });

  it("has at most 1,000 directives, 10,000 messages and 10,000 events", () => {
    const message = { role: "user", text: "a" };
    expect(readDirectives(new Array(1_000).fill(emit), "before_turn", "p")).toHaveLength(1_000);
    expect(() => readDirectives(new Array(1_001).fill(emit), "before_turn", "p")).toThrow(
      refused("an answer has at most 1000 directives, not 1001"),
    );
    expect(() =>
      readDirectives({ kind: "enqueue_messages", messages: new Array(10_001).fill(message) }, "before_turn", "p"),
    ).toThrow(refused("an answer has at most 10000 messages, not 10001"));
    expect(() => readStreamTransform({ events: new Array(10_001).fill({ name: "e" }) }, "", "p")).toThrow(
      refused("an answer has at most 10000 events, not 10001"),
    );
    expect(() => readOutcome({ events: new Array(10_001).fill({ name: "e" }) }, "p")).toThrow(
      refusal("operation_failed", "an answer has at most 10000 events, not 10001"),
    );
  });

  it("with texts of more than 16 Mi characters in all is refused", () => {
    const text = "x".repeat(9 * 1024 * 1024);
    const messages = [
      { role: "user", text },
      { role: "user", text },
    ];
    expect(() => readDirectives({ kind: "enqueue_messages", messages }, "before_turn", "p")).toThrow(
      refused("the answer has more than 16777216 characters"),
    );
    expect(() => readStreamTransform(text + text, "", "p")).toThrow(
      refused("the answer has more than 16777216 characters"),
    );
  });

  it("with arguments nested past 100 levels, or that refer to themselves, is refused", () => {
    let args: unknown = 1;
    for (let level = 0; level < 20_000; level++) args = [args];
    const cycle: { self?: unknown } = {};
    cycle.self = cycle;
    for (const hostile of [args, cycle])
      expect(() => readDirectives({ kind: "replace_tool_args", args: hostile }, "before_tool_call", "p")).toThrow(
        refused("the answer is nested deeper than 100 levels or refers to itself"),
      );
  });

  it.each([
    ["a bigint", 1n, "events[0].payload is a bigint"],
    ["a map", new Map(), "events[0].payload is a Map"],
    ["a function", () => 1, "events[0].payload is a function"],
  ])("with %s in the payload of an event is refused, since no host could write it as JSON", (_, payload, why) => {
    const directive = { kind: "emit_events", events: [{ name: "e", payload }] };
    expect(() => readDirectives(directive, "before_turn", "p")).toThrow(refused(`${why}; answers are plain JSON`));
    expect(() => readOutcome({ events: [{ name: "e", payload }] }, "p")).toThrow(
      expect.objectContaining({ code: "operation_failed" }),
    );
    const transform = { events: [{ name: "e", payload }] };
    expect(() => readStreamTransform(transform, "", "p")).toThrow(refused(`${why}; answers are plain JSON`));
    const response: ModelResponse = { parts: [], reason: "stop", usage: NO_USAGE };
    expect(() => readResponseTransform(transform, response, "p")).toThrow(refused(`${why}; answers are plain JSON`));
    expect(() => readDirectives({ kind: "emit_trace", name: "t", payload }, "checkpoint", "p")).toThrow(
      expect.objectContaining({ code: "invalid_hook_answer" }),
    );
  });
});
