import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type Message,
  type Part,
  type ProtocolStep,
  type StopReason,
  startTurn,
  stepTurn,
  type TurnConfig,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnState,
} from "../../src/kernel/index.js";
import { ANSWER, CODE, CONFIG, ISSUE, ran, response } from "./turns.js";

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

/** What a protocol makes of an answer; nothing: native tool calling. */
const next: fc.Arbitrary<ProtocolStep | undefined> = fc.oneof(
  { weight: 4, arbitrary: fc.constant(undefined) },
  { weight: 2, arbitrary: fc.constant(CODE) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("finish" as const),
      text: fc.constantFrom("", "4"),
      value: fc.constantFrom(4, null),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("tools" as const),
      calls: fc.array(fc.record({ callId: fc.uuid(), toolName: fc.constant("look"), args: fc.constant({}) }), {
        maxLength: 2,
      }),
      brokenArgs: fc.constant({}),
    }),
  },
);

/** One choice per answer: what the world says when it is asked. */
const choice = fc.record({
  directives,
  parts,
  next,
  /** The prompt is to be made anew for the next call. */
  syncs: fc.boolean(),
  /** The protocol leaves for another frame. */
  switches: fc.nat(7).map((n) => n === 0),
  /** The code ends the turn. */
  ends: fc.nat(2).map((n) => n === 0),
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
    ANSWER.beforeModel,
    ANSWER.frameSwitch,
    ANSWER.model({ type: "text", text: "stray" }),
    ANSWER.tools([]),
    ANSWER.code(),
    ANSWER.checkpoint(),
    ANSWER.afterTurn(),
    ANSWER.committed,
    ANSWER.delivered(),
  ),
});
type Choice = typeof choice extends fc.Arbitrary<infer C> ? C : never;

function answerTo(asked: Asked, { directives, parts, reason, fails, next, syncs, switches, ends }: Choice): TurnEvent {
  switch (asked.type) {
    case "before_turn":
      return fails ? ANSWER.refused : ANSWER.beforeTurn(directives);
    case "prompt":
      if (fails) return { type: "prompt_failed", issue: ISSUE };
      return syncs ? ANSWER.syncedPrompt : ANSWER.prompt;
    case "before_model":
      if (fails) return { type: "before_model_failed", issue: ISSUE };
      return switches ? ANSWER.frameSwitch : ANSWER.beforeModel;
    case "code": {
      const result = ran({ observations: ["42"], ...(fails && { error: "It broke." }) });
      return ANSWER.code({ ...result, ...(ends && { terminalFinish: { value: 42 } }) }, directives);
    }
    case "model": {
      if (fails) return { type: "model_failed", issue: ISSUE };
      const answer = response(parts, reason as "stop");
      return { type: "model_done", response: answer, ...(next !== undefined && { next }) };
    }
    case "tools":
      return ANSWER.tools(
        asked.calls.map((call) => ({
          ...call,
          output: { status: "success", value: call.callId, ...(ends && { control: { kind: "finish", value: 42 } }) },
          durationMs: 1,
          completed: 0,
        })),
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
  before_model: ["before_model_done", "frame_switch"],
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
  /** Each question with its answer. */
  readonly exchanges: readonly (readonly [Asked, TurnEvent])[];
  readonly final: TurnState;
}

/** Plays a turn to its end; each question is answered by the next choice, in turn. `cancelAt`: before which answer. */
function play(played: Game, cancelAt = -1): Run {
  const { choices, maxSteps } = played;
  let { state, effects } = startTurn(configOf(played));
  const events: TurnEvent[] = [];
  const states: TurnState[] = [state];
  const asked: Asked[] = [];
  const exchanges: [Asked, TurnEvent][] = [];
  const feed = (event: TurnEvent) => {
    const next = stepTurn(state, event);
    events.push(event);
    states.push(next.state);
    state = next.state;
    return next.effects;
  };
  // Per model call: a prompt, the protocol, the call, its work and a checkpoint; and four more for the whole turn.
  const bound = 5 * maxSteps + 4;
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
    const answer = answerTo(question, chosen);
    exchanges.push([question, answer]);
    effects = feed(answer);
  }
  return { events, states, asked, exchanges, final: state };
}

const game = fc.record({
  choices: fc.array(choice, { minLength: 1, maxLength: 20 }),
  maxSteps: fc.integer({ min: 1, max: 6 }),
  asksBeforeModel: fc.boolean(),
});
type Game = typeof game extends fc.Arbitrary<infer G> ? G : never;

function configOf({ maxSteps, asksBeforeModel }: Game): TurnConfig {
  return { ...CONFIG, maxSteps, asksBeforeModel };
}

describe("whatever the world answers, a turn", () => {
  it("asks for one thing at a time, and ends in done or failed", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { final, asked } = play(played);
        expect(["done", "failed"]).toContain(final.phase);
        const count = (wanted: Asked["type"]) => asked.filter(({ type }) => type === wanted).length;
        expect(count("model")).toBeLessThanOrEqual(played.maxSteps);
        for (const once of ["before_turn", "after_turn", "commit", "deliver"] as const)
          expect(count(once)).toBeLessThanOrEqual(1);
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
      fc.property(game, (played) => {
        const { states, asked, final } = play(played);
        const closing = states.filter(({ phase }) => ["after_turn", "commit", "deliver", "done"].includes(phase));
        for (const { outcome } of closing) expect(outcome).toEqual(closing[0]?.outcome);
        const told = asked.flatMap((effect) => ("summary" in effect ? [effect.summary.outcome] : []));
        for (const outcome of told) expect(outcome).toEqual(closing[0]?.outcome);
        if (final.phase !== "done") return;
        expect(told).toHaveLength(3);
        if (final.outcome?.type === "stopped") expect(reasons).toContain(final.outcome.reason);
        else if (asked.at(-4)?.type === "before_model") expect(final.outcome?.type).toBe("frame_switch");
        else expect(final.outcome?.type).toBe("finished");
      }),
      { numRuns: 500 },
    );
  });

  it("that is cancelled asks for nothing more than its end, wherever the cancellation comes", () => {
    const calm = game.map(({ choices, ...rest }) => ({
      ...rest,
      choices: choices.map((chosen) => ({ ...chosen, cancel: false })),
    }));
    fc.assert(
      fc.property(calm, fc.nat(12), (played, cancelAt) => {
        const { asked, final, events } = play(played, cancelAt);
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

  it("asks its protocol before every model call when it wants to be asked, and never otherwise", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { asked } = play(played);
        asked.forEach((effect, index) => {
          const before = asked[index - 1];
          if (effect.type === "before_model") expect(played.asksBeforeModel).toBe(true);
          if (effect.type !== "model" || !played.asksBeforeModel) return;
          expect(before).toEqual({ type: "before_model", step: effect.step });
        });
      }),
      { numRuns: 500 },
    );
  });

  it("makes its prompt anew before a model call exactly when the last prompt said so", () => {
    fc.assert(
      fc.property(game, (played) => {
        // The first call's prompt is always made.
        let due = true;
        let fresh = false;
        for (const [question, answer] of play(played).exchanges) {
          if (question.type === "prompt") {
            expect(due).toBe(true);
            due = answer.type === "prompt_done" && answer.syncs === true;
            fresh = true;
          }
          if (question.type !== "model") continue;
          expect(fresh || !due).toBe(true);
          fresh = false;
        }
      }),
      { numRuns: 500 },
    );
  });

  it("gives every tool call exactly one result, in the message that follows", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { messages } = play(played).final;
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
      fc.property(game, (played) => {
        const { states, final } = play(played);
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
      fc.property(game, (played) => {
        const { events, states } = play(played);
        let { state } = startTurn(configOf(played));
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
      fc.property(game, (played) => {
        const { events } = play(played);
        let { state } = startTurn(configOf(played));
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
