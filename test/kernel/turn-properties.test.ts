import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type Message,
  type Part,
  type StopReason,
  startTurn,
  stepTurn,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnState,
} from "../../src/kernel/index.js";
import { ANSWER, CONFIG, ISSUE, response } from "./turns.js";

type Asked = Exclude<TurnEffect, { type: "emit" }>;

const directives: fc.Arbitrary<TurnDirectives> = fc.record({
  abort: fc.option(fc.constant({ pluginId: "p", value: { kind: "abort_turn", code: "no", message: "No." } as const }), {
    nil: undefined,
    freq: 8,
  }),
  messages: fc.array(
    fc.record({
      pluginId: fc.constantFrom("p", "q"),
      value: fc.record({ role: fc.constantFrom("user", "system"), text: fc.string({ maxLength: 3 }) }),
    }),
    { maxLength: 2 },
  ),
  events: fc.array(fc.record({ pluginId: fc.constant("p"), value: fc.record({ name: fc.constant("e") }) }), {
    maxLength: 1,
  }),
});

const parts: fc.Arbitrary<Part[]> = fc.array(
  fc.oneof(
    fc.record({ type: fc.constant("text" as const), text: fc.string({ maxLength: 5 }) }),
    fc.record({ type: fc.constant("reasoning" as const), text: fc.string({ maxLength: 5 }) }),
    fc.record({
      type: fc.constant("tool_call" as const),
      callId: fc.uuid(),
      toolName: fc.constantFrom("look", "write"),
      args: fc.jsonValue({ maxDepth: 1 }) as fc.Arbitrary<never>,
    }),
  ),
  { maxLength: 4 },
);

/** One choice per answer: what the world says when it is asked. */
const choice = fc.record({
  directives,
  parts,
  reason: fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom("stop", "tool_calls", "unknown") },
    { weight: 1, arbitrary: fc.constantFrom("length", "content_filter", "error") },
  ),
  fails: fc.nat(12).map((n) => n === 0),
  /** Where a cancellation arrives: before this answer, or not here. */
  cancel: fc.nat(15).map((n) => n === 0),
  /** Something nobody waits for any more. */
  stray: fc.constantFrom<TurnEvent | undefined>(
    undefined,
    ANSWER.beforeTurn(),
    ANSWER.prompt,
    ANSWER.model({ type: "text", text: "stray" }),
    ANSWER.tools([]),
    ANSWER.checkpoint(),
    ANSWER.afterTurn(),
    ANSWER.committed,
    ANSWER.delivered(),
  ),
});
type Choice = typeof choice extends fc.Arbitrary<infer C> ? C : never;

function answerTo(asked: Asked, { directives, parts, reason, fails }: Choice): TurnEvent {
  switch (asked.type) {
    case "before_turn":
      return fails ? ANSWER.refused : ANSWER.beforeTurn(directives);
    case "prompt":
      return fails ? { type: "prompt_failed", issue: ISSUE } : ANSWER.prompt;
    case "before_model":
      if (fails) return { type: "before_model_failed", issue: ISSUE };
      return reason === "length"
        ? { type: "frame_switch", frameId: "f2", task: "Go on." }
        : { type: "before_model_done" };
    case "code":
      return {
        type: "code_done",
        directives,
        result: {
          observations: ["42"],
          toolCalls: [],
          durationMs: 1,
          ...(fails && { error: "It broke." }),
          ...(reason === "stop" && { terminalFinish: { value: 42 } }),
        },
      };
    case "model":
      return fails
        ? { type: "model_failed", issue: ISSUE }
        : { type: "model_done", response: response(parts, reason as "stop") };
    case "tools":
      return ANSWER.tools(
        asked.calls.map((call) => ({ ...call, output: { status: "success", value: call.callId }, durationMs: 1 })),
        directives,
      );
    case "checkpoint":
      return fails ? { type: "checkpoint_failed", issue: ISSUE } : ANSWER.checkpoint(directives);
    case "after_turn":
      return fails ? ANSWER.refused : ANSWER.afterTurn({ ...directives, abort: undefined });
    case "commit":
      return fails ? ANSWER.refused : ANSWER.committed;
    case "deliver":
      return ANSWER.delivered(fails ? [ISSUE] : []);
  }
}

const ANSWERS: Record<Asked["type"], readonly TurnEvent["type"][]> = {
  before_turn: ["before_turn_done"],
  prompt: ["prompt_done"],
  before_model: ["before_model_done"],
  code: ["code_done"],
  model: ["model_done"],
  tools: ["tools_done"],
  checkpoint: ["checkpoint_done"],
  after_turn: ["after_turn_done"],
  commit: ["committed"],
  deliver: ["delivered"],
};

interface Run {
  readonly events: readonly TurnEvent[];
  readonly states: readonly TurnState[];
  readonly asked: readonly Asked[];
  readonly final: TurnState;
}

/** Plays a turn to its end; each question is answered by the next choice, in turn. `cancelAt`: before which answer. */
function play(choices: readonly Choice[], maxSteps: number, cancelAt = -1): Run {
  let { state, effects } = startTurn({ ...CONFIG, maxSteps });
  const events: TurnEvent[] = [];
  const states: TurnState[] = [state];
  const asked: Asked[] = [];
  const feed = (event: TurnEvent) => {
    const next = stepTurn(state, event);
    events.push(event);
    states.push(next.state);
    state = next.state;
    return next.effects;
  };
  // Per model call: the call, its tools and two checkpoints; and six more for the whole turn.
  const bound = 3 * maxSteps + 6;
  for (;;) {
    const questions = effects.filter((effect): effect is Asked => effect.type !== "emit");
    if (questions.length === 0) break;
    expect(questions).toHaveLength(1);
    const question = questions[0] as Asked;
    asked.push(question);
    expect(asked.length).toBeLessThanOrEqual(bound);
    const chosen = choices[asked.length % choices.length] as Choice;
    if (chosen.stray !== undefined && !ANSWERS[question.type].includes(chosen.stray.type)) {
      const before = state;
      expect(feed(chosen.stray)).toEqual([]);
      expect(state).toBe(before);
    }
    if (chosen.cancel || asked.length - 1 === cancelAt) {
      expect(feed(ANSWER.cancel())).toEqual([]);
    }
    effects = feed(answerTo(question, chosen));
  }
  return { events, states, asked, final: state };
}

const game = fc.tuple(fc.array(choice, { minLength: 1, maxLength: 20 }), fc.integer({ min: 1, max: 6 }));

describe("whatever the world answers, a turn", () => {
  it("asks for one thing at a time, and ends in done or failed", () => {
    fc.assert(
      fc.property(game, ([choices, maxSteps]) => {
        const { final, asked } = play(choices, maxSteps);
        expect(["done", "failed"]).toContain(final.phase);
        expect(asked.filter(({ type }) => type === "model").length).toBeLessThanOrEqual(maxSteps);
        for (const once of ["before_turn", "prompt", "after_turn", "commit", "deliver"]) {
          expect(asked.filter(({ type }) => type === once).length).toBeLessThanOrEqual(1);
        }
        if (final.phase === "done")
          expect(asked.slice(-3).map(({ type }) => type)).toEqual(["after_turn", "commit", "deliver"]);
      }),
      { numRuns: 500 },
    );
  });

  it("has exactly one outcome, decided before after_turn and never changed", () => {
    const reasons: readonly StopReason[] = [
      "cancelled",
      "incomplete",
      "max_turns",
      "provider_error",
      "plugin_abort",
      "runtime_error",
    ];
    fc.assert(
      fc.property(game, ([choices, maxSteps]) => {
        const { states, asked, final } = play(choices, maxSteps);
        const closing = states.filter(({ phase }) => ["after_turn", "commit", "deliver", "done"].includes(phase));
        for (const { outcome } of closing) expect(outcome).toEqual(closing[0]?.outcome);
        const told = asked.flatMap((effect) => ("summary" in effect ? [effect.summary.outcome] : []));
        for (const outcome of told) expect(outcome).toEqual(closing[0]?.outcome);
        if (final.phase !== "done") return;
        expect(told).toHaveLength(3);
        if (final.outcome?.type === "stopped") expect(reasons).toContain(final.outcome.reason);
        else expect(final.outcome?.type).toBe("finished");
      }),
      { numRuns: 500 },
    );
  });

  it("that is cancelled asks for nothing more than its end, wherever the cancellation comes", () => {
    const calm = choice.map((chosen) => ({ ...chosen, cancel: false }));
    const gameWithCancel = fc.tuple(
      fc.array(calm, { minLength: 1, maxLength: 20 }),
      fc.integer({ min: 1, max: 6 }),
      fc.nat(8),
    );
    fc.assert(
      fc.property(gameWithCancel, ([choices, maxSteps, cancelAt]) => {
        const { asked, final, events } = play(choices, maxSteps, cancelAt);
        const cancelled = asked[cancelAt]?.type;
        if (cancelled === undefined || ["after_turn", "commit", "deliver"].includes(cancelled)) return;
        const rest = asked.slice(cancelAt + 1).map(({ type }) => type);
        expect(["after_turn", "commit", "deliver"].slice(0, rest.length)).toEqual(rest);
        if (events.some(({ type }) => type === "refused")) expect(final.phase).toBe("failed");
        else expect(["cancelled", "plugin_abort"]).toContain(final.outcome?.type === "stopped" && final.outcome.reason);
      }),
      { numRuns: 500 },
    );
  });

  it("gives every tool call exactly one result, in the message that follows", () => {
    fc.assert(
      fc.property(game, ([choices, maxSteps]) => {
        const { messages } = play(choices, maxSteps).final;
        messages.forEach((message, index) => {
          const calls = message.parts.flatMap((part) => (part.type === "tool_call" ? [part.callId] : []));
          expect(resultsOf(messages[index + 1])).toEqual(calls);
          if (calls.length > 0) expect(messages[index + 1]?.role).toBe("tool");
        });
      }),
      { numRuns: 500 },
    );
  });

  it("numbers its messages in order and only ever adds to them", () => {
    fc.assert(
      fc.property(game, ([choices, maxSteps]) => {
        const { states, final } = play(choices, maxSteps);
        expect(final.messages.map(({ id }) => id)).toEqual(final.messages.map((_, index) => `t1.${index}`));
        states.forEach(({ messages }, index) => {
          const before = states[index - 1]?.messages ?? [];
          expect(messages.slice(0, before.length)).toEqual(before);
        });
      }),
      { numRuns: 300 },
    );
  });

  it("replays to the same states from the same events", () => {
    fc.assert(
      fc.property(game, ([choices, maxSteps]) => {
        const { events, states } = play(choices, maxSteps);
        let { state } = startTurn({ ...CONFIG, maxSteps });
        const replayed = [state];
        for (const event of structuredClone(events) as TurnEvent[]) {
          state = stepTurn(state, event).state;
          replayed.push(state);
        }
        expect(replayed).toEqual(states);
      }),
      { numRuns: 300 },
    );
  });

  it("never changes a state it was given", () => {
    fc.assert(
      fc.property(game, ([choices, maxSteps]) => {
        const { events } = play(choices, maxSteps);
        let { state } = startTurn({ ...CONFIG, maxSteps });
        for (const event of events) state = stepTurn(deepFreeze(state), deepFreeze(event)).state;
        expect(["done", "failed"]).toContain(state.phase);
      }),
      { numRuns: 300 },
    );
  });
});

function resultsOf(message: Message | undefined): string[] {
  return message?.parts.flatMap((part) => (part.type === "tool_result" ? [part.callId] : [])) ?? [];
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}
