import { describe, expect, it } from "vitest";
import {
  type ModelCallRecord,
  type ModelResponse,
  NO_USAGE,
  type Part,
  type TurnConfig,
  type TurnEvent,
  type UntimedActivity,
  type Usage,
} from "../../../src/kernel/index.js";
import type { TurnStep } from "../../../src/kernel/turn/turn-state.js";
import { ANSWER, call, ISSUE, linesOf, TO, text, record as toolRecord, turnAfter, USAGE } from "./turns.js";

const recordOf = (step: number, model = "acme:large", usage: Usage | undefined = USAGE): ModelCallRecord => ({
  modelCallId: `t1#${step}`,
  step,
  model,
  route: `${model}@here`,
  attempts: [
    { attempt: 1, outcome: "completed", durationMs: 1, outputStarted: true, ...(usage !== undefined && { usage }) },
  ],
});
const answer = (response: Partial<ModelResponse>, record?: ModelCallRecord): TurnEvent => ({
  type: "model_done",
  response: { parts: [], reason: "stop", usage: USAGE, ...response },
  ...(record !== undefined && { record }),
});
const told = ({ effects }: TurnStep): UntimedActivity[] =>
  effects.flatMap((effect) => (effect.type === "emit" ? [effect.activity] : []));
const asked = (event: TurnEvent, config: Partial<TurnConfig> = {}) => turnAfter([...TO.model, event], config);

describe("a model call", () => {
  it("that is answered ends with its record, which the turn keeps", () => {
    const step = asked(answer({ parts: [text("hi")] }, recordOf(0)));
    expect(told(step)).toEqual([
      {
        type: "model_call_finished",
        modelCallId: "t1#0",
        step: 0,
        reason: "stop",
        usage: USAGE,
        record: recordOf(0),
      },
    ]);
    expect(step.state.modelCallRecords).toEqual([recordOf(0)]);
  });

  it("that fails ends too, with the code and what it cost, before the issue it leaves", () => {
    const failed: TurnEvent = { type: "model_failed", issue: ISSUE, usage: USAGE, record: recordOf(0) };
    const step = asked(failed);
    expect(told(step)).toEqual([
      {
        type: "model_call_failed",
        modelCallId: "t1#0",
        step: 0,
        code: "hook_failed",
        usage: USAGE,
        record: recordOf(0),
      },
      { type: "issue", issue: ISSUE },
    ]);
    expect(step.state.modelCallRecords).toEqual([recordOf(0)]);
  });

  it("that is cancelled, or does not come to an attempt, ends as well", () => {
    const ended = [{ type: "model_call_failed", modelCallId: "t1#0", step: 0, code: "hook_failed" }];
    const cancelled = turnAfter([...TO.model, ANSWER.cancel(), { type: "model_failed", issue: ISSUE }]);
    expect(told(cancelled)).toEqual(ended);
    const toolsBroken = asked({ type: "prompt_failed", issue: ISSUE });
    expect(told(toolsBroken)).toEqual([...ended, { type: "issue", issue: ISSUE }]);
    expect(toolsBroken.state.outcome).toMatchObject({ reason: "runtime_error" });
  });
});

describe("an answer that is cut off by a cancellation", () => {
  const stop: TurnEvent = { type: "cancel", reason: "Enough.", keepPartial: true };
  const brokenOff = (...shown: Part[]): TurnEvent => ({ type: "model_failed", issue: ISSUE, shown });
  const keptOf = (...events: TurnEvent[]) => turnAfter([...TO.model, ...events]).state.messages.slice(1);
  const reasoning = { type: "reasoning", text: "hm" } as const;

  it("is kept as one marked message of the text that was shown, without reasoning and calls, when that is wanted", () => {
    const kept = [{ role: "assistant", interrupted: true, parts: [text("The warranty ")] }];
    expect(keptOf(stop, brokenOff(reasoning, text("The warranty "), call("c1")))).toMatchObject(kept);
    // It was whole by the time it was told to end.
    expect(keptOf(stop, ANSWER.model(reasoning, text("The warranty "), call("c1")))).toMatchObject(kept);
  });

  it("leaves no message when nothing was shown, or nobody wants it kept", () => {
    expect(keptOf(stop, brokenOff(reasoning, call("c1")))).toEqual([]);
    expect(keptOf(stop, brokenOff())).toEqual([]);
    expect(keptOf(ANSWER.cancel(), brokenOff(text("The warranty ")))).toEqual([]);
  });
});

describe("an answer that does not have the form that was asked for", () => {
  const unfit = (misfit: string) => ({ ...ANSWER.model(text("seven")), misfit }) as TurnEvent;

  it("is followed by what is wrong with it, once: the second such answer ends the turn, both in the history", () => {
    const first = asked(unfit("It is no number."));
    expect(first.state).toMatchObject({ step: 1, repaired: true, outcome: undefined });
    expect(first.state.messages.at(-1)?.origin).toEqual({ kind: "protocol" });
    const second = turnAfter([...TO.model, unfit("It is no number."), unfit("Nor is this one.")]);
    expect(linesOf(second.state)).toEqual([
      "user: hello",
      "assistant: seven",
      "user: It is no number. Answer again, completely, in the form that was asked for.",
      "assistant: seven",
    ]);
    expect(second.state.outcome).toEqual({
      type: "stopped",
      reason: "invalid_output",
      code: "output_invalid",
      message: "Nor is this one.",
    });
  });

  it("ends the turn at once when no model call is left for another", () => {
    const { outcome, messages } = asked(unfit("It is no number."), { maxSteps: 1 }).state;
    expect(outcome).toMatchObject({ reason: "invalid_output", message: "It is no number." });
    expect(messages).toHaveLength(2);
  });
});

describe("an answer in the history", () => {
  it("carries the route it came by, with its reasoning and metadata, also when it is the last one", () => {
    const reasoning = { type: "reasoning", text: "hm", metadata: { acme: { signature: "s" } } } as const;
    const { state } = turnAfter([
      ...TO.model,
      answer({ parts: [reasoning, call("c1")] }, recordOf(0)),
      ANSWER.tools([toolRecord("c1")]),
      ANSWER.checkpoint(),
      answer({ parts: [reasoning, text("done")] }, recordOf(1, "acme:small")),
    ]);
    expect(state.messages.filter(({ role }) => role === "assistant")).toEqual([
      { id: "t1.1", role: "assistant", parts: [reasoning, call("c1")], route: "acme:large@here" },
      { id: "t1.3", role: "assistant", parts: [reasoning, text("done")], route: "acme:small@here" },
    ]);
    // What others said has no route.
    expect(state.messages.filter(({ route }) => route !== undefined)).toHaveLength(2);
  });
});

describe("the usage of a turn", () => {
  it("is kept by model as well", () => {
    const { state } = turnAfter([
      ...TO.model,
      answer({ parts: [call("c1")] }, recordOf(0)),
      ANSWER.tools([toolRecord("c1")]),
      ANSWER.checkpoint(),
      answer({ parts: [call("c2")] }, recordOf(1, "acme:small")),
      ANSWER.tools([toolRecord("c2")]),
      ANSWER.checkpoint(),
      { type: "model_failed", issue: ISSUE, usage: USAGE, record: recordOf(2) },
    ]);
    const twice = { ...NO_USAGE, inputTokens: 20, outputTokens: 10 };
    expect(state.spent).toEqual([
      { source: "turn", model: "acme:large", usage: twice },
      { source: "turn", model: "acme:small", usage: USAGE },
    ]);
    expect(state.usage).toEqual({ ...NO_USAGE, inputTokens: 30, outputTokens: 15 });
  });

  // turn §8.10
  it("that cannot be counted exactly ends the turn with what was counted before, and keeps no answer", () => {
    const most = { ...NO_USAGE, inputTokens: Number.MAX_SAFE_INTEGER };
    const { state, effects } = turnAfter([
      ...TO.model,
      answer({ parts: [call("c1")], usage: most }, recordOf(0)),
      ANSWER.tools([toolRecord("c1")]),
      ANSWER.checkpoint(),
      answer({ parts: [text("too much")] }, recordOf(1)),
    ]);
    expect(state.outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "token_usage_overflow" });
    expect(state.usage).toEqual(most);
    expect(state.spent).toEqual([{ source: "turn", model: "acme:large", usage: most }]);
    expect(state.modelCallRecords).toHaveLength(2);
    expect(linesOf(state).at(-1)).toBe("tool: seen");
    expect(effects.at(-1)).toMatchObject({ type: "after_turn" });
  });
});

describe("an answer that ran into a limit", () => {
  const cutOff = (inputTokens: number, outputTokens: number) =>
    answer({ parts: [text("half an ans")], reason: "length", usage: { ...NO_USAGE, inputTokens, outputTokens } });

  // turn §8.8
  it("is incomplete, and no message of it is kept", () => {
    const { state } = asked(cutOff(10, 500), { maxContextTokens: 1_000 });
    expect(state.outcome).toMatchObject({ type: "stopped", reason: "incomplete", code: "output_limit" });
    expect(linesOf(state)).toEqual(["user: hello"]);
  });

  // turn §8.9
  it("of nothing at all under a full context is a context overflow", () => {
    const { state } = asked(cutOff(950, 0), { maxContextTokens: 1_000 });
    expect(state.outcome).toMatchObject({ type: "stopped", reason: "provider_error", code: "context_overflow" });
    expect(state.issues).toMatchObject([{ kind: "model", code: "context_overflow" }]);
    expect(linesOf(state)).toEqual(["user: hello"]);
  });

  // turn §8.9
  it.each([
    ["there was room", 949, 0, 1_000],
    ["something was said", 1_000, 1, 1_000],
    ["nobody said how much the model can read", 1_000, 0, null],
    ["nobody said anything", 1_000, 0, undefined],
  ])("is incomplete when %s", (_, inputTokens, outputTokens, maxContextTokens) => {
    const config = maxContextTokens === undefined ? {} : { maxContextTokens };
    expect(asked(cutOff(inputTokens, outputTokens), config).state.outcome).toMatchObject({
      reason: "incomplete",
      code: "output_limit",
    });
  });
});
