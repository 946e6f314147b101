import { describe, expect, it } from "vitest";
import { type ModelResponse, NO_USAGE } from "../../../src/kernel/index.js";
import {
  ALLOWED,
  type DirectiveSite,
  readContributions,
  readDirectives,
  readResponseTransform,
  readStreamTransform,
} from "../../../src/session/plugins/read-answers.js";

const refusal = (code: string, why: string) =>
  expect.objectContaining({ code, message: `Plugin p: ${why}.`, details: { pluginId: "p" } });

const abort = { kind: "abort_turn", code: "no", message: "No." };
const enqueue = { kind: "enqueue_messages", messages: [{ role: "user", text: "a" }] };
const replace = { kind: "replace_tool_args", args: null };
const short = { kind: "short_circuit_tool", output: { status: "success", value: 1 } };
const emit = { kind: "emit_events", events: [{ name: "e" }] };
const create = { kind: "create_session", request: {} };
const trace = { kind: "emit_trace", name: "t" };
const handoff = { kind: "handoff_session", sessionId: "other" };
const DIRECTIVES = [abort, enqueue, create, handoff, replace, short, emit, trace];

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
    ["before_turn", ["abort_turn", "enqueue_messages", "create_session", "emit_events", "emit_trace"]],
    ["checkpoint", ["abort_turn", "enqueue_messages", "create_session", "emit_events", "emit_trace"]],
    ["after_turn", ["enqueue_messages", "create_session", "emit_events", "emit_trace"]],
  ])("takes at %s what is allowed there and refuses the rest", (site, allowed) => {
    expect(ALLOWED[site]).toEqual(allowed);
    for (const directive of DIRECTIVES) {
      if (allowed.includes(directive.kind)) expect(readDirectives(directive, site, "p")).toHaveLength(1);
      else {
        expect(() => readDirectives(directive, site, "p")).toThrow(
          refusal(
            "directive_not_allowed",
            `${directive.kind} is not allowed in ${site}; allowed are ${allowed.join(", ")}`,
          ),
        );
      }
    }
  });

  it.each<[DirectiveSite, string[]]>([
    [
      "before_tool_call",
      ["abort_turn", "create_session", "replace_tool_args", "short_circuit_tool", "emit_events", "emit_trace"],
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
      const message = `Plugin p: ${directive.kind} is not allowed in ${site}; allowed are ${allowed.join(", ")}.`;
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
    ["a string", "abort", "a hook returns a directive, a list of them or nothing"],
    ["a list with a hole", [undefined], "a hook returns a directive, a list of them or nothing"],
    ["a number in a list", [abort, 7], "a hook returns a directive, a list of them or nothing"],
    ["an object of no kind", {}, "the directive undefined is unknown or incomplete"],
    ["an unknown kind", { kind: "explode" }, "the directive explode is unknown or incomplete"],
    [
      "an abort without code",
      { kind: "abort_turn", message: "x" },
      "the directive abort_turn is unknown or incomplete",
    ],
    [
      "an abort without message",
      { kind: "abort_turn", code: "x" },
      "the directive abort_turn is unknown or incomplete",
    ],
    [
      "messages that are no list",
      { kind: "enqueue_messages", messages: "x" },
      "the directive enqueue_messages is unknown or incomplete",
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
      refusal("invalid_hook_answer", "the directive replace_tool_args is unknown or incomplete"),
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
    expect(() => readDirectives(directive, "before_tool_call", "p")).toThrow(
      refusal("invalid_hook_answer", `the directive ${kind} is unknown or incomplete`),
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
        refusal("invalid_hook_answer", "the directive short_circuit_tool is unknown or incomplete"),
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
    ["a response without parts", { response: {} }, "the response must keep its parts"],
    ["parts that are none", { response: { parts: ["b"] } }, "the response must keep its parts"],
    ["events that are none", { events: 1 }, "events are a list of { name, payload? }"],
  ])("refuses %s", (_, answer, why) => {
    expect(() => readResponseTransform(answer, response, "p")).toThrow(refusal("invalid_hook_answer", why));
  });
});
