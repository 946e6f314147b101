import { describe, expect, it } from "vitest";
import {
  type AppendNode,
  NO_DIRECTIVES,
  NO_USAGE,
  resultOf,
  startTurn,
  type ToolRecord,
  type TurnEvent,
} from "../../../src/kernel/index.js";
import type { TurnPhase } from "../../../src/kernel/turn/turn-state.js";
import { summarise } from "../../../src/kernel/turn/turn-steps.js";
import {
  ANSWER,
  aborting,
  CODE,
  CONFIG,
  call,
  ISSUE,
  injected,
  linesOf,
  namesOf,
  type Place,
  record,
  response,
  saying,
  TO,
  text,
  turnAfter,
  turnAt,
  USAGE,
} from "./turns.js";

const stopped = (reason: string, code: string, message: string) => ({ type: "stopped", reason, code, message });
const CANCELLED = stopped("cancelled", "cancelled", "Enough.");
const END = ["emit issue", "after_turn"];

describe("the start of a turn", () => {
  it("asks for before_turn with the input as its first message", () => {
    expect(startTurn(CONFIG)).toEqual({
      state: {
        phase: "before_turn",
        config: CONFIG,
        step: 0,
        messages: [
          {
            id: "t1.0",
            role: "user",
            parts: [{ type: "text", text: "hello" }],
            origin: { kind: "turn_input", turnId: "t1" },
          },
        ],
        usage: NO_USAGE,
        spent: [],
        modelCallRecords: [],
        toolCalls: [],
        issues: [],
        outcome: undefined,
        initialNodes: [],
        revision: 0,
        checkpoint: undefined,
        fruitless: 0,
        reopened: 0,
        work: undefined,
        repaired: false,
        syncsPrompt: false,
        cancel: undefined,
        deferred: [],
      },
      effects: [
        { type: "emit", activity: { type: "turn_started", version: 1, turnId: "t1", turnIndex: 0 } },
        { type: "before_turn" },
      ],
    });
  });
});

describe("every transition", () => {
  const modelFailed: TurnEvent = { type: "model_failed", issue: ISSUE };
  const asked = (reason: Parameters<typeof response>[1], ...parts: Parameters<typeof response>[0]): TurnEvent => ({
    type: "model_done",
    response: response(parts, reason),
  });
  const reasoning = { type: "reasoning", text: "hm" } as const;

  it.each<[Place, string, TurnEvent, TurnPhase, string[]]>([
    ["before_turn", "is done", ANSWER.beforeTurn(), "prompt", ["prompt"]],
    [
      "before_turn",
      "injects messages",
      ANSWER.beforeTurn(injected("p", "a")),
      "prompt",
      ["emit messages_injected", "prompt"],
    ],
    ["before_turn", "says something", ANSWER.beforeTurn(saying("p", "e")), "prompt", ["emit plugin_event", "prompt"]],
    ["before_turn", "aborts", ANSWER.beforeTurn(aborting("p", "no")), "after_turn", END],
    ["before_turn", "is refused", ANSWER.refused, "failed", []],
    ["prompt", "is done", ANSWER.prompt, "model", ["emit model_call_started", "model"]],
    ["prompt", "fails", { type: "prompt_failed", issue: ISSUE }, "after_turn", END],
    ["before_model", "is done", ANSWER.beforeModel, "model", ["emit model_call_started", "model"]],
    ["before_model", "switches frames", ANSWER.frameSwitch, "after_turn", ["after_turn"]],
    ["before_model", "fails", { type: "before_model_failed", issue: ISSUE }, "after_turn", END],
    [
      "model",
      "answers",
      ANSWER.model(text("hi")),
      "checkpoint",
      ["emit model_call_finished", "checkpoint before_completion"],
    ],
    ["model", "calls a tool", ANSWER.model(call("c1")), "tools", ["emit model_call_finished", "tools"]],
    ["model", "speaks and calls", ANSWER.model(text("hm"), call("c1")), "tools", ["emit model_call_finished", "tools"]],
    [
      "model",
      "only reasons",
      ANSWER.model(reasoning),
      "checkpoint",
      ["emit model_call_finished", "checkpoint before_completion"],
    ],
    ["model", "says nothing", ANSWER.model(), "after_turn", ["emit model_call_finished", ...END]],
    ["model", "says the empty text", ANSWER.model(text("")), "after_turn", ["emit model_call_finished", ...END]],
    ["model", "runs out of length", asked("length", text("hi")), "after_turn", ["emit model_call_finished", ...END]],
    ["model", "is filtered", asked("content_filter"), "after_turn", ["emit model_call_finished", ...END]],
    ["model", "reports an error", asked("error"), "after_turn", ["emit model_call_finished", ...END]],
    [
      "model",
      "stops for a reason unknown",
      asked("unknown", text("hi")),
      "checkpoint",
      ["emit model_call_finished", "checkpoint before_completion"],
    ],
    ["model", "fails", modelFailed, "after_turn", ["emit model_call_failed", ...END]],
    ["model", "writes code", ANSWER.interpreted(CODE, text("1 + 1")), "code", ["emit model_call_finished", "code"]],
    [
      "model",
      "gives a value and no text",
      ANSWER.interpreted({ kind: "finish", text: "", value: null }),
      "checkpoint",
      ["emit model_call_finished", "checkpoint before_completion"],
    ],
    [
      "model",
      "has its text taken for a tool call",
      ANSWER.interpreted({ kind: "tools", calls: [], brokenArgs: {} }, text("look()")),
      "tools",
      ["emit model_call_finished", "tools"],
    ],
    [
      "model",
      "says nothing its protocol can use",
      ANSWER.interpreted({ kind: "finish", text: "" }, text("FINAL")),
      "after_turn",
      ["emit model_call_finished", ...END],
    ],
    [
      "model",
      "runs out of length while it writes code",
      { type: "model_done", response: response([text("1 +")], "length"), next: CODE },
      "after_turn",
      ["emit model_call_finished", ...END],
    ],
    ["code", "is done", ANSWER.code({ observations: ["2"] }), "checkpoint", ["checkpoint after_work"]],
    ["code", "fails", ANSWER.code({ error: "x is not defined" }), "checkpoint", ["checkpoint after_work"]],
    [
      "code",
      "ends the turn",
      ANSWER.code({ terminalFinish: { value: 2 } }),
      "checkpoint",
      ["checkpoint before_completion"],
    ],
    [
      "code",
      "injects messages",
      ANSWER.code({}, injected("p", "a")),
      "checkpoint",
      ["emit messages_injected", "checkpoint after_work"],
    ],
    ["code", "aborts", ANSWER.code({ terminalFinish: { value: 2 } }, aborting("p", "no")), "after_turn", END],
    [
      "model",
      "finds its tools broken",
      { type: "prompt_failed", issue: ISSUE },
      "after_turn",
      ["emit model_call_failed", ...END],
    ],
    ["tools", "are done", ANSWER.tools([record("c1")]), "checkpoint", ["checkpoint after_work"]],
    [
      "tools",
      "inject messages",
      ANSWER.tools([record("c1")], injected("p", "a")),
      "checkpoint",
      ["emit messages_injected", "checkpoint after_work"],
    ],
    ["tools", "abort", ANSWER.tools([record("c1")], aborting("p", "no")), "after_turn", END],
    ["after_work", "is done", ANSWER.checkpoint(), "model", ["emit model_call_started", "model"]],
    [
      "after_work",
      "injects messages",
      ANSWER.checkpoint(injected("p", "a")),
      "model",
      ["emit messages_injected", "emit model_call_started", "model"],
    ],
    ["after_work", "aborts", ANSWER.checkpoint(aborting("p", "no")), "after_turn", END],
    ["after_work", "fails", { type: "checkpoint_failed", issue: ISSUE }, "after_turn", END],
    ["before_completion", "is done", ANSWER.checkpoint(), "after_turn", ["after_turn"]],
    [
      "before_completion",
      "injects messages",
      ANSWER.checkpoint(injected("p", "a")),
      "model",
      ["emit messages_injected", "emit model_call_started", "model"],
    ],
    ["before_completion", "aborts", ANSWER.checkpoint(aborting("p", "no")), "after_turn", END],
    ["before_completion", "fails", { type: "checkpoint_failed", issue: ISSUE }, "after_turn", END],
    ["synced_after_work", "is done", ANSWER.checkpoint(), "prompt", ["prompt"]],
    ["synced_before_completion", "is done", ANSWER.checkpoint(), "after_turn", ["after_turn"]],
    [
      "synced_before_completion",
      "injects messages",
      ANSWER.checkpoint(injected("p", "a")),
      "prompt",
      ["emit messages_injected", "prompt"],
    ],
    ["after_turn", "is done", ANSWER.afterTurn(), "capture", ["capture"]],
    ["after_turn", "is refused", ANSWER.refused, "failed", []],
    ["capture", "is done", ANSWER.captured(), "commit", ["commit"]],
    ["capture", "is refused", ANSWER.refused, "failed", []],
    ["commit", "is done", ANSWER.committed, "deliver", ["deliver"]],
    ["commit", "is refused", ANSWER.refused, "failed", []],
    ["deliver", "is done", ANSWER.delivered(), "done", ["emit turn_finished"]],
  ])("%s %s", (place, _, event, phase, effects) => {
    const step = turnAt(place, event);
    expect(step.state.phase).toBe(phase);
    expect(namesOf(step)).toEqual(effects);
  });
});

describe("a whole turn", () => {
  it("with one tool call leaves the conversation, the counts and the order of effects", () => {
    const events = [
      ANSWER.beforeTurn(),
      ANSWER.prompt,
      ANSWER.model(text("let me see"), call("c1", { city: "Oslo" })),
      ANSWER.tools([record("c1", "rain")]),
      ANSWER.checkpoint(),
      ANSWER.model(text("It "), text("rains.")),
      ANSWER.checkpoint(),
      ANSWER.afterTurn(),
      ANSWER.captured(),
      ANSWER.committed,
      ANSWER.delivered(),
    ];
    const steps = events.map((_, index) => turnAfter(events.slice(0, index + 1)));
    expect(steps.map(namesOf)).toEqual([
      ["prompt"],
      ["emit model_call_started", "model"],
      ["emit model_call_finished", "tools"],
      ["checkpoint after_work"],
      ["emit model_call_started", "model"],
      ["emit model_call_finished", "checkpoint before_completion"],
      ["after_turn"],
      ["capture"],
      ["commit"],
      ["deliver"],
      ["emit turn_finished"],
    ]);
    const { state } = turnAfter(events);
    expect(linesOf(state)).toEqual([
      "user: hello",
      "assistant: let me see | call c1",
      "tool: rain",
      "assistant: It  | rains.",
    ]);
    expect(state.messages.map(({ id }) => id)).toEqual(["t1.0", "t1.1", "t1.2", "t1.3"]);
    expect(steps[8]?.effects).toEqual([
      {
        type: "commit",
        summary: {
          turnId: "t1",
          turnIndex: 0,
          outcome: { type: "finished", text: "It rains." },
          text: "It rains.",
          usage: { ...NO_USAGE, inputTokens: 20, outputTokens: 10 },
          modelCalls: 2,
          toolCalls: [record("c1", "rain")],
          issues: [],
        },
        messages: state.messages,
        spent: [{ source: "turn", model: "unknown", usage: { ...NO_USAGE, inputTokens: 20, outputTokens: 10 } }],
        modelCallRecords: [],
        initialNodes: [],
      },
    ]);
  });

  it("tells the steps of its model calls apart", () => {
    expect(turnAfter(TO.model).effects).toEqual([
      { type: "emit", activity: { type: "model_call_started", modelCallId: "t1#0", step: 0 } },
      { type: "model", step: 0 },
    ]);
    const second = turnAfter([...TO.after_work, ANSWER.checkpoint()]);
    expect(second.effects).toEqual([
      { type: "emit", activity: { type: "model_call_started", modelCallId: "t1#1", step: 1 } },
      { type: "model", step: 1 },
    ]);
    expect(turnAfter([...TO.after_work, ANSWER.checkpoint(), ANSWER.model(text("x"))]).effects[0]).toEqual({
      type: "emit",
      activity: { type: "model_call_finished", modelCallId: "t1#1", step: 1, reason: "stop", usage: USAGE },
    });
  });
});

describe("tool calls", () => {
  it("are asked for in the order the model wrote them, without what only the provider needs", () => {
    const metadata = { acme: { signature: "x" } };
    const step = turnAfter([
      ...TO.model,
      ANSWER.model(call("c1", 1), { type: "tool_call", callId: "c2", toolName: "look", args: [2], metadata }),
    ]);
    expect(step.effects[1]).toEqual({
      type: "tools",
      calls: [
        { callId: "c1", toolName: "look", args: 1 },
        { callId: "c2", toolName: "look", args: [2] },
      ],
      brokenArgs: {},
    });
    expect(step.state.messages[1]?.parts[1]).toEqual({
      type: "tool_call",
      callId: "c2",
      toolName: "look",
      args: [2],
      metadata,
    });
  });

  it("bring along the arguments that were not JSON", () => {
    const step = turnAfter([
      ...TO.model,
      { type: "model_done", response: { ...response([call("c1", "{oops")]), brokenArgs: { c1: "{oops" } } },
    ]);
    expect(step.effects[1]).toMatchObject({ type: "tools", brokenArgs: { c1: "{oops" } });
  });

  it("have their results in one message, failures and cancellations in words", () => {
    const base = { toolName: "look", args: {}, durationMs: 1, completed: 0 };
    const { state } = turnAfter([
      ...TO.model,
      ANSWER.model(call("c1"), call("c2"), call("c3"), call("c4")),
      ANSWER.tools([
        { ...base, callId: "c1", output: { status: "success", value: { ok: [1, null] } } },
        {
          ...base,
          callId: "c2",
          output: { status: "failure", failure: { kind: "timeout", code: "tool_timeout", message: "Too slow." } },
        },
        { ...base, callId: "c3", output: { status: "cancelled", message: "The turn ended." } },
        { ...base, callId: "c4", output: { status: "success", value: "plain" } },
      ]),
    ]);
    expect(state.messages[2]).toEqual({
      id: "t1.2",
      role: "tool",
      parts: [
        { type: "tool_result", callId: "c1", toolName: "look", status: "success", text: '{"ok":[1,null]}', json: true },
        {
          type: "tool_result",
          callId: "c2",
          toolName: "look",
          status: "failure",
          text: "[Tool execution failed]\ntool_timeout: Too slow.",
        },
        {
          type: "tool_result",
          callId: "c3",
          toolName: "look",
          status: "cancelled",
          text: "[Tool execution cancelled]\nThe turn ended.",
        },
        { type: "tool_result", callId: "c4", toolName: "look", status: "success", text: "plain" },
      ],
    });
  });

  it("have results of parts with the same in words beside them, and with nothing a message may not hold", () => {
    const stored = { kind: "stored", hash: "h", bytes: 3 } as const;
    const bytes = new Uint8Array(5);
    const base = { toolName: "look", args: {}, durationMs: 1, completed: 0 };
    const result = (callId: string, more: object) =>
      ({ ...base, callId, output: { status: "success", value: "seen" }, ...more }) as ToolRecord;
    const { state } = turnAfter([
      ...TO.model,
      ANSWER.model(call("c1"), call("c2"), call("c3")),
      ANSWER.tools([
        result("c1", {
          output: {
            status: "success",
            value: "seen",
            content: [
              { type: "text", text: "A map:" },
              { type: "json", value: { scale: 2 } },
              { type: "attachment", mediaType: "image/png", name: "map.png", source: stored },
              { type: "attachment", mediaType: "image/png", source: { kind: "inline", bytes } },
            ],
          },
        }),
        result("c2", { modelContent: [{ type: "text", text: "shown" }] }),
        result("c3", { modelText: "said" }),
      ]),
    ]);
    const part = { type: "tool_result", toolName: "look", status: "success" };
    expect(state.messages[2]?.parts).toEqual([
      {
        ...part,
        callId: "c1",
        text: 'A map:\n{"scale":2}\n[image/png map.png, 3 bytes]\n[image/png, 5 bytes]',
        content: [
          { type: "text", text: "A map:" },
          { type: "json", value: { scale: 2 } },
          { type: "attachment", mediaType: "image/png", name: "map.png", source: stored },
          { type: "text", text: "[image/png, 5 bytes]" },
        ],
      },
      { ...part, callId: "c2", text: "shown", content: [{ type: "text", text: "shown" }] },
      { ...part, callId: "c3", text: "said" },
    ]);
  });

  it("have their results before anything a plugin injects", () => {
    expect(
      linesOf(turnAfter([...TO.tools, ANSWER.tools([record("c1")], injected("p", "mind the gap"))]).state),
    ).toEqual(["user: hello", "assistant: call c1", "tool: seen", "user: mind the gap"]);
  });

  it("have their results also when the turn is aborted or cancelled by then", () => {
    const lines = ["user: hello", "assistant: call c1", "tool: seen"];
    expect(linesOf(turnAfter([...TO.tools, ANSWER.tools([record("c1")], aborting("p", "no"))]).state)).toEqual(lines);
    expect(linesOf(turnAfter([...TO.tools, ANSWER.cancel(), ANSWER.tools([record("c1")])]).state)).toEqual(lines);
  });
});

describe("the model's answer", () => {
  const outcomeOf = (...events: TurnEvent[]) => turnAfter([...TO.model, ...events, ANSWER.checkpoint()]).state.outcome;
  const ended = (reason: Parameters<typeof response>[1]): TurnEvent => ({
    type: "model_done",
    response: response([text("partial")], reason),
  });

  it.each([
    ["length", stopped("incomplete", "output_limit", "The model reached its output limit.")],
    ["content_filter", stopped("provider_error", "content_filter", "The provider filtered the answer.")],
    ["error", stopped("provider_error", "provider_error", "The provider reported an error.")],
  ] as const)("that ends for %s stops the turn and is not kept", (reason, outcome) => {
    const { state } = turnAfter([...TO.model, ended(reason)]);
    expect(state.outcome).toEqual(outcome);
    expect(state.issues).toEqual([{ kind: "model", code: outcome.code, message: outcome.message }]);
    expect(linesOf(state)).toEqual(["user: hello"]);
    expect(state.usage).toEqual(USAGE);
    expect(state.step).toBe(1);
  });

  // turn §8.15
  it("that is empty stops the turn with empty_response", () => {
    const expected = stopped("provider_error", "empty_response", "The model answered with nothing.");
    expect(turnAfter([...TO.model, ANSWER.model()]).state.outcome).toEqual(expected);
    expect(turnAfter([...TO.model, ANSWER.model(text(""))]).state.outcome).toEqual(expected);
  });

  // turn §8.15
  it("may be empty right after a tool: it had nothing to add", () => {
    const { state } = turnAfter([...TO.after_work, ANSWER.checkpoint(), ANSWER.model(), ANSWER.checkpoint()]);
    expect(state.phase).toBe("after_turn");
    expect(state.outcome).toEqual({ type: "finished", text: "" });
    expect(linesOf(state)).toEqual(["user: hello", "assistant: call c1", "tool: seen"]);
  });

  it("may be reasoning alone", () => {
    expect(outcomeOf(ANSWER.model({ type: "reasoning", text: "hm" }))).toEqual({ type: "finished", text: "" });
  });

  // turn §8.51
  it("is the text of all its parts, without the reasoning", () => {
    expect(outcomeOf(ANSWER.model(text("a"), { type: "reasoning", text: "hm" }, text("b")))).toEqual({
      type: "finished",
      text: "ab",
    });
  });

  it("with tool calls goes on even when the provider says stop, and without even when it says tool_calls", () => {
    expect(turnAfter([...TO.model, { type: "model_done", response: response([call("c1")], "stop") }]).state.phase).toBe(
      "tools",
    );
    expect(
      turnAfter([...TO.model, { type: "model_done", response: response([text("x")], "tool_calls") }]).state.checkpoint,
    ).toBe("before_completion");
  });

  // turn §8.16
  it("that fails stops the turn with the reason of the failure", () => {
    const issue = { kind: "model", code: "model_unavailable", message: "503" } as const;
    const { state } = turnAfter([...TO.model, { type: "model_failed", issue }]);
    expect(state.outcome).toEqual(stopped("provider_error", "model_unavailable", "503"));
    expect(state.issues).toEqual([issue]);
    expect([state.step, state.usage]).toEqual([0, NO_USAGE]);
  });

  // §15.29
  it("that was given and then spoiled is counted and paid for, also in a turn that was cancelled", () => {
    const spoiled: TurnEvent = { type: "model_failed", issue: ISSUE, usage: USAGE };
    const { state } = turnAfter([...TO.model, spoiled]);
    expect(state.outcome).toEqual(stopped("provider_error", "hook_failed", "It failed."));
    expect([state.step, state.usage]).toEqual([1, USAGE]);
    const { state: cancelled } = turnAfter([...TO.model, ANSWER.cancel(), spoiled]);
    expect([cancelled.outcome, cancelled.step, cancelled.usage]).toEqual([CANCELLED, 1, USAGE]);
  });
});

describe("the limit of model calls", () => {
  const LIMIT = (n: number) => stopped("max_turns", "max_turns", `The turn reached its limit of ${n} model calls.`);
  const work = (n: number) => [ANSWER.model(call(`c${n}`)), ANSWER.tools([record(`c${n}`)])];

  // turn §8.20
  // turn §8.12
  it("stops the turn after the tools of the last one, with their results kept", () => {
    const step = turnAfter([...TO.model, ...work(1), ANSWER.checkpoint(), ...work(2)], { maxSteps: 2 });
    expect(step.state.outcome).toEqual(LIMIT(2));
    expect(namesOf(step)).toEqual(END);
    expect(linesOf(step.state)).toEqual([
      "user: hello",
      "assistant: call c1",
      "tool: seen",
      "assistant: call c2",
      "tool: seen",
    ]);
  });

  // turn §8.12
  it("does not touch a turn that answers with its last call", () => {
    const { state } = turnAfter(
      [...TO.model, ...work(1), ANSWER.checkpoint(), ANSWER.model(text("done")), ANSWER.checkpoint()],
      {
        maxSteps: 2,
      },
    );
    expect(state.outcome).toEqual({ type: "finished", text: "done" });
  });

  it("bounds a plugin that reopens the turn for ever", () => {
    const again = [ANSWER.model(text("done")), ANSWER.checkpoint(injected("p", "once more"))];
    const { state } = turnAfter([...TO.model, ...again, ...again, ...again]);
    expect(state.outcome).toEqual(LIMIT(3));
    expect(state.step).toBe(3);
    expect(state.messages).toHaveLength(7);
  });
});

describe("a message injected before completion", () => {
  // turn §8.11
  it("reopens the turn; only the last answer is its text", () => {
    const reopened = turnAfter([...TO.before_completion, ANSWER.checkpoint(injected("p", "are you sure?"))]);
    expect(reopened.state.outcome).toBeUndefined();
    const { state } = turnAfter([
      ...TO.before_completion,
      ANSWER.checkpoint(injected("p", "are you sure?")),
      ANSWER.model(text("yes")),
      ANSWER.checkpoint(),
    ]);
    expect(state.outcome).toEqual({ type: "finished", text: "yes" });
    expect(linesOf(state)).toEqual(["user: hello", "assistant: hi", "user: are you sure?", "assistant: yes"]);
    expect(state.messages[2]?.origin).toEqual({ kind: "plugin", pluginId: "p" });
  });

  it("names each plugin it came from, in order", () => {
    const both = { ...NO_DIRECTIVES, messages: [...injected("b", "1", "2").messages, ...injected("a", "3").messages] };
    expect(turnAfter([...TO.before_completion, ANSWER.checkpoint(both)]).effects[0]).toEqual({
      type: "emit",
      activity: { type: "messages_injected", pluginIds: ["b", "b", "a"] },
    });
  });
});

describe("an abort by a plugin", () => {
  const SITES: [string, TurnEvent[]][] = [
    ["before_turn", [ANSWER.beforeTurn(aborting("p", "no_budget"))]],
    ["tools", [...TO.tools, ANSWER.tools([record("c1")], aborting("p", "no_budget"))]],
    ["code", [...TO.code, ANSWER.code({}, aborting("p", "no_budget"))]],
    ["after_work", [...TO.after_work, ANSWER.checkpoint(aborting("p", "no_budget"))]],
    ["before_completion", [...TO.before_completion, ANSWER.checkpoint(aborting("p", "no_budget"))]],
  ];

  it.each(SITES)("at %s stops the turn with the plugin's code", (_, events) => {
    const { state, effects } = turnAfter(events);
    const issue = { kind: "plugin", pluginId: "p", code: "no_budget", message: "no_budget it is." };
    expect(state.outcome).toEqual(stopped("plugin_abort", "no_budget", "no_budget it is."));
    expect(state.issues).toEqual([issue]);
    expect(effects[0]).toEqual({ type: "emit", activity: { type: "issue", issue } });
  });

  it.each(SITES)("at %s is weaker than a cancellation: whoever cancelled was told that it counts", (_, events) => {
    const { state } = turnAfter([...events.slice(0, -1), ANSWER.cancel(), ...events.slice(-1)]);
    expect(state.outcome).toMatchObject({ reason: "cancelled", message: "Enough." });
  });

  it("keeps what the same hooks injected and said", () => {
    const directives = {
      ...aborting("p", "no"),
      messages: injected("q", "a").messages,
      events: saying("q", "e").events,
    };
    const step = turnAfter([ANSWER.beforeTurn(directives)]);
    expect(linesOf(step.state)).toEqual(["user: hello", "user: a"]);
    expect(namesOf(step)).toEqual(["emit plugin_event", "emit messages_injected", ...END]);
  });
});

describe("a failing hook", () => {
  it.each<[string, TurnEvent[]]>([
    ["prompt", [...TO.prompt, { type: "prompt_failed", issue: ISSUE }]],
    ["model", [...TO.model, { type: "prompt_failed", issue: ISSUE }]],
    ["after_work", [...TO.after_work, { type: "checkpoint_failed", issue: ISSUE }]],
    ["before_completion", [...TO.before_completion, { type: "checkpoint_failed", issue: ISSUE }]],
  ])("at %s stops the turn with runtime_error", (_, events) => {
    const { state } = turnAfter(events);
    expect(state.outcome).toEqual(stopped("runtime_error", "hook_failed", "It failed."));
    expect(state.issues).toEqual([ISSUE]);
  });
});

describe("a cancellation", () => {
  it.each<[Place, TurnEvent]>([
    ["before_turn", ANSWER.beforeTurn()],
    ["prompt", ANSWER.prompt],
    ["prompt", { type: "prompt_failed", issue: ISSUE }],
    ["before_model", ANSWER.beforeModel],
    ["before_model", { type: "before_model_failed", issue: ISSUE }],
    ["before_model", ANSWER.frameSwitch],
    ["model", ANSWER.model(text("hi"))],
    ["model", ANSWER.model(call("c1"))],
    ["model", { type: "model_failed", issue: ISSUE }],
    ["model", ANSWER.interpreted(CODE, text("1 + 1"))],
    ["tools", ANSWER.tools([record("c1")])],
    ["code", ANSWER.code({ observations: ["2"] })],
    ["code", ANSWER.code({ terminalFinish: { value: 2 } })],
    ["after_work", ANSWER.checkpoint()],
    ["after_work", { type: "checkpoint_failed", issue: ISSUE }],
    ["before_completion", ANSWER.checkpoint()],
    ["before_completion", ANSWER.checkpoint(injected("p", "go on"))],
    ["synced_after_work", ANSWER.checkpoint()],
  ])("during %s waits for the answer and then ends the turn", (place, answer) => {
    const waiting = turnAt(place, ANSWER.cancel());
    expect(waiting.effects).toEqual([]);
    expect(waiting.state).toEqual({ ...turnAt(place).state, cancel: { reason: "Enough." } });
    const { state, effects } = turnAt(place, ANSWER.cancel(), answer);
    expect(state.phase).toBe("after_turn");
    expect(state.outcome).toEqual(CANCELLED);
    expect(effects.at(-1)).toMatchObject({ type: "after_turn", summary: { outcome: CANCELLED, text: "" } });
    expect(state.issues).toEqual([]);
  });

  // turn §8.50
  it("drops an answer of the model that came too late, but counts what it cost", () => {
    const { state } = turnAfter([...TO.model, ANSWER.cancel(), ANSWER.model(call("c1"))]);
    expect(linesOf(state)).toEqual(["user: hello"]);
    expect(state.usage).toEqual(USAGE);
    expect(state.step).toBe(1);
  });

  it("keeps its first reason", () => {
    const { state } = turnAfter([
      ...TO.model,
      ANSWER.cancel("first"),
      ANSWER.cancel("second"),
      ANSWER.model(text("x")),
    ]);
    expect(state.outcome).toEqual(stopped("cancelled", "cancelled", "first"));
  });

  it.each(["after_turn", "commit", "deliver", "done"] as const)("during %s comes too late", (place) => {
    const { state } = turnAfter([...TO[place], ANSWER.cancel()]);
    expect(state).toEqual(turnAfter(TO[place]).state);
  });
});

describe("a protocol that wants to be asked before every model call", () => {
  const asking = (...events: TurnEvent[]) => turnAfter(events, { asksBeforeModel: true });
  const first = [ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.beforeModel, ANSWER.model(call("c1"))];
  const second = [...first, ANSWER.tools([record("c1")]), ANSWER.checkpoint()];

  it("is asked with the step, before each call and not only before the first", () => {
    expect(asking(ANSWER.beforeTurn(), ANSWER.prompt).effects).toEqual([{ type: "before_model", step: 0 }]);
    expect(asking(...second).effects).toEqual([{ type: "before_model", step: 1 }]);
    expect(asking(...second, ANSWER.beforeModel).effects).toEqual([
      { type: "emit", activity: { type: "model_call_started", modelCallId: "t1#1", step: 1 } },
      { type: "model", step: 1 },
    ]);
  });

  it("is asked again when a checkpoint reopens the turn", () => {
    const reopened = asking(
      ANSWER.beforeTurn(),
      ANSWER.prompt,
      ANSWER.beforeModel,
      ANSWER.model(text("hi")),
      ANSWER.checkpoint(injected("p", "are you sure?")),
    );
    expect(namesOf(reopened)).toEqual(["emit messages_injected", "before_model"]);
    expect(reopened.state.outcome).toBeUndefined();
  });

  it("may leave for another frame: the turn ends without a model call and is stored", () => {
    const switched = asking(ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.frameSwitch);
    expect(switched.state.outcome).toEqual({ type: "frame_switch", frameId: "f2", task: "Go on." });
    expect(switched.effects).toEqual([
      {
        type: "after_turn",
        summary: {
          turnId: "t1",
          turnIndex: 0,
          outcome: { type: "frame_switch", frameId: "f2", task: "Go on." },
          text: "",
          usage: NO_USAGE,
          modelCalls: 0,
          toolCalls: [],
          issues: [],
        },
      },
    ]);
    const last = [ANSWER.afterTurn(), ANSWER.captured()];
    const initialNodes: AppendNode[] = [{ kind: "message", message: { role: "user", text: "Begin." } }];
    const left: TurnEvent = { type: "frame_switch", frameId: "f2", task: "Go on.", initialNodes };
    expect(asking(ANSWER.beforeTurn(), ANSWER.prompt, left, ...last).effects).toMatchObject([
      { type: "commit", summary: { outcome: { type: "frame_switch", frameId: "f2", task: "Go on." } }, initialNodes },
    ]);
  });

  it("that leaves in the middle keeps what the turn has done so far", () => {
    const { state } = asking(...second, ANSWER.frameSwitch);
    expect(linesOf(state)).toEqual(["user: hello", "assistant: call c1", "tool: seen"]);
    expect([state.step, state.usage]).toEqual([1, USAGE]);
  });

  it("that fails stops the turn with its code", () => {
    const issue = { kind: "plugin", code: "before_llm_call_failed", message: "No." } as const;
    const { state } = asking(...second, { type: "before_model_failed", issue });
    expect(state.outcome).toEqual(stopped("runtime_error", "before_llm_call_failed", "No."));
    expect(state.issues).toEqual([issue]);
  });

  it("is not asked once the turn has its last call behind it", () => {
    const step = turnAfter([...first, ANSWER.tools([record("c1")])], { asksBeforeModel: true, maxSteps: 1 });
    expect(step.state.outcome).toMatchObject({ reason: "max_turns" });
  });
});

describe("code", () => {
  it("is asked for as the model wrote it, behind its words", () => {
    const step = turnAt("code");
    expect(step.effects[1]).toEqual({ type: "code", language: "js", code: "1 + 1" });
    expect(linesOf(step.state)).toEqual(["user: hello", "assistant: 1 + 1"]);
  });

  it("leaves what it printed as a message of the protocol, and its tool calls in the record", () => {
    const { state } = turnAt("code", ANSWER.code({ observations: ["2", "3"], toolCalls: [record("c1")] }));
    expect(state.messages[2]).toEqual({
      id: "t1.2",
      role: "user",
      parts: [{ type: "text", text: "2\n3" }],
      origin: { kind: "protocol" },
    });
    expect(state.toolCalls).toEqual([record("c1")]);
  });

  it("that failed is shown to the model, which goes on", () => {
    const { state } = turnAt("code", ANSWER.code({ observations: ["2"], error: "no x" }), ANSWER.checkpoint());
    expect(linesOf(state).at(-1)).toBe("user: 2\n[Code failed]\nno x");
    expect(state.phase).toBe("model");
    expect(state.issues).toEqual([]);
  });

  it.each([
    ["a text as it is", "four", { type: "finished", text: "four", value: "four" }],
    ["anything else as JSON", { sum: [4] }, { type: "finished", text: '{"sum":[4]}', value: { sum: [4] } }],
    ["null, too", null, { type: "finished", text: "null", value: null }],
  ])("may end the turn with a value: %s", (_, value, outcome) => {
    const { state } = turnAt("code", ANSWER.code({ terminalFinish: { value } }), ANSWER.checkpoint());
    expect(state.phase).toBe("after_turn");
    expect(state.outcome).toEqual(outcome);
  });

  it("that ended the turn with its last call is within the limit", () => {
    const step = turnAfter([...TO.code, ANSWER.code({ terminalFinish: { value: 2 } })], { maxSteps: 1 });
    expect(step.state.checkpoint).toBe("before_completion");
  });

  it("that did not end the turn with its last call is not", () => {
    const step = turnAfter([...TO.code, ANSWER.code({ observations: ["2"] })], { maxSteps: 1 });
    expect(step.state.outcome).toEqual(
      stopped("max_turns", "max_turns", "The turn reached its limit of 1 model calls."),
    );
    expect(linesOf(step.state).at(-1)).toBe("user: 2");
  });

  it("whose value a checkpoint reopens is not the turn's answer any more", () => {
    const events = [
      ANSWER.code({ terminalFinish: { value: 2 } }),
      ANSWER.checkpoint(injected("p", "are you sure?")),
      ANSWER.model(text("yes")),
      ANSWER.checkpoint(),
    ];
    expect(turnAt("code", ...events).state.outcome).toEqual({ type: "finished", text: "yes" });
  });

  it("has what it printed in the history before what a plugin injects, also when the turn is aborted by then", () => {
    const lines = ["user: hello", "assistant: 1 + 1", "user: 2", "user: mind the gap"];
    const directives = injected("p", "mind the gap");
    expect(linesOf(turnAt("code", ANSWER.code({ observations: ["2"] }, directives)).state)).toEqual(lines);
    const aborted = { ...directives, abort: aborting("p", "no").abort };
    expect(linesOf(turnAt("code", ANSWER.code({ observations: ["2"] }, aborted)).state)).toEqual(lines);
  });
});

describe("a protocol that makes something else of an answer", () => {
  const calls = (step: ReturnType<typeof turnAt>) =>
    step.state.messages.map(({ parts }) => parts.flatMap((part) => ("callId" in part ? [part.callId] : [])));

  it("keeps no call in the history that nobody makes: providers refuse a call without a result", () => {
    const answer = ANSWER.interpreted(CODE, text("1 + 1"), call("c1"));
    expect(linesOf(turnAt("model", answer).state)).toEqual(["user: hello", "assistant: 1 + 1"]);
    const finish = ANSWER.interpreted({ kind: "finish", text: "4" }, text("4"), call("c1"));
    expect(linesOf(turnAt("model", finish).state)).toEqual(["user: hello", "assistant: 4"]);
    const one = { callId: "c2", toolName: "look", args: {} };
    const some = ANSWER.interpreted({ kind: "tools", calls: [one], brokenArgs: {} }, call("c1"), call("c2"));
    expect(calls(turnAt("model", some, ANSWER.tools([record("c2")])))).toEqual([[], ["c2"], ["c2"]]);
  });

  it("keeps the calls it read out of a text as calls: providers refuse a result without a call", () => {
    const read = { callId: "r1", toolName: "look", args: { city: "Oslo" } };
    const answer = ANSWER.interpreted({ kind: "tools", calls: [read], brokenArgs: {} }, text("look(Oslo)"));
    const step = turnAt("model", answer, ANSWER.tools([record("r1")]));
    expect(step.state.messages[1]?.parts).toEqual([text("look(Oslo)"), { type: "tool_call", ...read }]);
    expect(calls(step)).toEqual([[], ["r1"], ["r1"]]);
  });

  it("that finds no call to make leaves no empty message of results", () => {
    const none = ANSWER.interpreted({ kind: "tools", calls: [], brokenArgs: {} }, text("look("));
    expect(linesOf(turnAt("model", none, ANSWER.tools([])).state)).toEqual(["user: hello", "assistant: look("]);
  });
});

describe("a protocol that gives the turn's answer a value", () => {
  it("has it in the outcome beside the text", () => {
    const next = { kind: "finish", text: "It is 4.", value: 4 } as const;
    const { state } = turnAt("model", ANSWER.interpreted(next, text("FINAL 4")), ANSWER.checkpoint());
    expect(state.outcome).toEqual({ type: "finished", text: "It is 4.", value: 4 });
    expect(linesOf(state)).toEqual(["user: hello", "assistant: FINAL 4"]);
  });
});

describe("a prompt that is made anew for every model call", () => {
  const work = (n: number) => [ANSWER.model(call(`c${n}`)), ANSWER.tools([record(`c${n}`)]), ANSWER.checkpoint()];

  // turn §8.7
  it("is asked for before each, until it says that it stays", () => {
    const events = [
      ANSWER.beforeTurn(),
      ANSWER.syncedPrompt,
      ...work(1),
      ANSWER.syncedPrompt,
      ...work(2),
      ANSWER.prompt,
    ];
    const asked = events
      .map((_, index) => turnAfter(events.slice(0, index + 1), { maxSteps: 5 }))
      .flatMap((step) => namesOf(step).filter((name) => name === "prompt" || name === "model"));
    expect(asked).toEqual(["prompt", "model", "prompt", "model", "prompt", "model"]);
    expect(namesOf(turnAfter([...events, ...work(3)], { maxSteps: 5 }))).toEqual(["emit model_call_started", "model"]);
  });

  it("is made before the protocol is asked about the call", () => {
    const events = [ANSWER.beforeTurn(), ANSWER.syncedPrompt, ANSWER.beforeModel, ...work(1)];
    expect(namesOf(turnAfter(events, { asksBeforeModel: true }))).toEqual(["prompt"]);
    expect(namesOf(turnAfter([...events, ANSWER.syncedPrompt], { asksBeforeModel: true }))).toEqual(["before_model"]);
  });

  it("that fails in the middle stops the turn and keeps what was done", () => {
    const { state } = turnAt("synced_after_work", ANSWER.checkpoint(), { type: "prompt_failed", issue: ISSUE });
    expect(state.outcome).toEqual(stopped("runtime_error", "hook_failed", "It failed."));
    expect(linesOf(state)).toEqual(["user: hello", "assistant: call c1", "tool: seen"]);
  });
});

describe("after_turn", () => {
  it("adds its messages to what is stored and tells the host only once they are", () => {
    const directives = { ...injected("p", "for next time"), events: saying("p", "noted").events };
    const events = [...TO.after_turn, ANSWER.afterTurn(directives), ANSWER.captured()];
    const committing = turnAfter(events);
    expect(namesOf(committing)).toEqual(["commit"]);
    expect(linesOf(committing.state)).toEqual(["user: hello", "assistant: hi", "user: for next time"]);
    expect(committing.state.outcome).toEqual({ type: "finished", text: "hi" });
    const stored = turnAfter([...events, ANSWER.committed]);
    expect(namesOf(stored)).toEqual(["emit plugin_event", "emit messages_injected", "deliver"]);
  });

  it("and the capture behind it add their issues to the summary that is stored", () => {
    const late = { ...ISSUE, code: "plugin_capture_failed" };
    const step = turnAfter([...TO.after_turn, ANSWER.afterTurn(NO_DIRECTIVES, [ISSUE]), ANSWER.captured([late])]);
    expect(step.effects).toMatchObject([{ type: "commit", summary: { issues: [ISSUE, late] } }]);
  });

  it("runs for a turn that was stopped, too", () => {
    const step = turnAfter([
      ...TO.model,
      { type: "model_failed", issue: ISSUE },
      ANSWER.afterTurn(),
      ANSWER.captured(),
    ]);
    expect(step.effects).toMatchObject([
      { type: "commit", summary: { outcome: { type: "stopped", reason: "provider_error" }, text: "", modelCalls: 0 } },
    ]);
  });
});

describe("the summary of a turn", () => {
  // turn §8.52
  it("that was left before it had an outcome says that it failed, not that it finished", () => {
    const summary = summarise(turnAt("tools").state);
    expect(summary.outcome).toEqual(stopped("runtime_error", "no_outcome", "The turn has no outcome."));
    expect([summary.text, summary.modelCalls, summary.usage]).toEqual(["", 1, USAGE]);
  });
});

describe("deliver", () => {
  it("adds the issues of those who were told to the result", () => {
    const { state, effects } = turnAfter([...TO.deliver, ANSWER.delivered([ISSUE])]);
    const result = { turnId: "t1", sessionId: "s", revision: 1, issues: [ISSUE], modelCallRecords: [] };
    expect(resultOf(state)).toMatchObject(result);
    expect(effects).toEqual([{ type: "emit", activity: { type: "turn_finished", result: resultOf(state) } }]);
  });
});
