import fc from "fast-check";
import { expect } from "vitest";
import {
  type Json,
  type Part,
  type ProtocolStep,
  startTurn,
  stepTurn,
  type TurnConfig,
  type TurnDirectives,
  type TurnEffect,
  type TurnEvent,
  type TurnState,
} from "../../../src/kernel/index.js";
import { ANSWER, CODE, CONFIG, ISSUE, ran, response } from "./turns.js";

/** Turns against a world that answers as it likes. */
export type Asked = Exclude<TurnEffect, { type: "emit" }>;

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

/** What survives being kept: JSON has no -0, and no store reads a key __proto__ back. */
const args = fc
  .jsonValue({ maxDepth: 1 })
  .map((value) => JSON.stringify(value))
  .filter((json) => !json.includes("__proto__"))
  .map((json): Json => JSON.parse(json));

const parts: fc.Arbitrary<Part[]> = fc.array(
  fc.oneof(
    fc.record({ type: fc.constant("text" as const), text: fc.string({ maxLength: 5 }) }),
    fc.record({ type: fc.constant("reasoning" as const), text: fc.string({ maxLength: 5 }) }),
    fc.record({
      type: fc.constant("tool_call" as const),
      callId: fc.uuid(),
      toolName: fc.constantFrom("look", "write"),
      args,
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
  /** What waited for a checkpoint. */
  inputs: fc.array(fc.record({ id: fc.uuid(), text: fc.constant("wait") }), { maxLength: 1 }),
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
    ANSWER.captured([ISSUE]),
    ANSWER.committed,
    ANSWER.delivered(),
  ),
});
type Choice = typeof choice extends fc.Arbitrary<infer C> ? C : never;

function answerTo(asked: Asked, chosen: Choice): TurnEvent {
  const { directives, parts, reason, fails, next, inputs, syncs, switches, ends } = chosen;
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
      if (fails) return { type: "checkpoint_failed", issue: ISSUE };
      // An abort leaves waiting what waits.
      return { type: "checkpoint_done", directives, inputs: directives.abort === undefined ? inputs : [] };
    case "after_turn":
      return fails ? ANSWER.refused : ANSWER.afterTurn({ ...directives, abort: undefined });
    case "capture":
      return fails ? ANSWER.refused : ANSWER.captured(ends ? [ISSUE] : []);
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
  capture: ["captured"],
  commit: ["committed"],
  deliver: ["delivered"],
};

interface Run {
  readonly events: readonly TurnEvent[];
  readonly states: readonly TurnState[];
  /** What each of the states waits for. */
  readonly waits: readonly (Asked | undefined)[];
  readonly asked: readonly Asked[];
  /** Each question with its answer. */
  readonly exchanges: readonly (readonly [Asked, TurnEvent])[];
  readonly final: TurnState;
}

const isAsked = (effect: TurnEffect): effect is Asked => effect.type !== "emit";

/** Plays a turn to its end; each question is answered by the next choice, in turn. `cancelAt`: before which answer. */
export function play(played: Game, cancelAt = -1): Run {
  const { choices, maxSteps } = played;
  let { state, effects } = startTurn(configOf(played));
  const events: TurnEvent[] = [];
  const states: TurnState[] = [state];
  const waits: (Asked | undefined)[] = [effects.find(isAsked)];
  const asked: Asked[] = [];
  const exchanges: [Asked, TurnEvent][] = [];
  const feed = (event: TurnEvent) => {
    const next = stepTurn(state, event);
    events.push(event);
    states.push(next.state);
    // Whatever changes nothing leaves the question that was open.
    const ended = next.state.phase === "done" || next.state.phase === "failed";
    waits.push(ended ? undefined : (next.effects.find(isAsked) ?? waits.at(-1)));
    state = next.state;
    return next.effects;
  };
  // Per model call: a prompt, the protocol, the call, its work and a checkpoint; and five more for the whole turn.
  const bound = 5 * maxSteps + 5;
  for (;;) {
    const questions = effects.filter(isAsked);
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
  return { events, states, waits, asked, exchanges, final: state };
}

export const game = fc.record({
  choices: fc.array(choice, { minLength: 1, maxLength: 20 }),
  maxSteps: fc.integer({ min: 1, max: 6 }),
  asksBeforeModel: fc.boolean(),
});
export type Game = typeof game extends fc.Arbitrary<infer G> ? G : never;

export function configOf({ maxSteps, asksBeforeModel }: Game): TurnConfig {
  return { ...CONFIG, maxSteps, asksBeforeModel };
}
