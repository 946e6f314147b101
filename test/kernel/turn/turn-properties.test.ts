import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Message, startTurn, stepTurn, type TurnEvent, type TurnState } from "../../../src/kernel/index.js";
import type { StopReason } from "../../../src/kernel/turn/activity.js";
import { outstanding } from "../../../src/kernel/turn/turn-steps.js";
import { decode, encode } from "../../../src/wire/index.js";
import { type Asked, configOf, game, play } from "./turn-games.js";

describe("whatever the world answers, a turn", () => {
  it("asks for one thing at a time, and ends in done or failed", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { final, asked } = play(played);
        expect(["done", "failed"]).toContain(final.phase);
        const count = (wanted: Asked["type"]) => asked.filter(({ type }) => type === wanted).length;
        expect(count("model")).toBeLessThanOrEqual(played.maxSteps);
        for (const once of ["before_turn", "after_turn", "capture", "commit", "deliver"] as const)
          expect(count(once)).toBeLessThanOrEqual(1);
        if (final.phase === "done")
          expect(asked.slice(-4).map(({ type }) => type)).toEqual(["after_turn", "capture", "commit", "deliver"]);
      }),
      { numRuns: 500 },
    );
  });

  it("asks for nothing twice, and leaves nothing it asked for open", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { asked, exchanges, final } = play(played);
        const names = asked.map((effect, index) => {
          if (effect.type === "before_model" || effect.type === "model") return `${effect.type} ${effect.step}`;
          // Between two model calls each of the others is asked for once.
          const calls = asked.slice(0, index).filter(({ type }) => type === "model").length;
          const site = effect.type === "checkpoint" ? effect.checkpoint : "";
          return `${effect.type} ${site} behind ${calls}`;
        });
        expect(new Set(names).size).toBe(names.length);
        expect(exchanges.map(([question]) => question)).toEqual(asked);
        expect(outstanding(final)).toBeUndefined();
      }),
      { numRuns: 500 },
    );
  });

  it("takes an answer once: the same one again, and every earlier one, changes nothing", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { states, events } = play(played);
        events.forEach((event, index) => {
          const state = states[index + 1] as TurnState;
          expect(stepTurn(state, event)).toEqual({ state, effects: [] });
        });
        const final = states.at(-1) as TurnState;
        for (const event of events) expect(stepTurn(final, event)).toEqual({ state: final, effects: [] });
      }),
      { numRuns: 300 },
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
        const closing = states.filter(({ phase }) =>
          ["after_turn", "capture", "commit", "deliver", "done"].includes(phase),
        );
        for (const { outcome } of closing) expect(outcome).toEqual(closing[0]?.outcome);
        const told = asked.flatMap((effect) => ("summary" in effect ? [effect.summary.outcome] : []));
        for (const outcome of told) expect(outcome).toEqual(closing[0]?.outcome);
        if (final.phase !== "done") return;
        expect(told).toHaveLength(3);
        if (final.outcome?.type === "stopped") expect(reasons).toContain(final.outcome.reason);
        else if (asked.at(-5)?.type === "before_model") expect(final.outcome?.type).toBe("frame_switch");
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
        if (cancelled === undefined || ["after_turn", "capture", "commit", "deliver"].includes(cancelled)) return;
        const rest = asked.slice(cancelAt + 1).map(({ type }) => type);
        expect(["after_turn", "capture", "commit", "deliver"].slice(0, rest.length)).toEqual(rest);
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

  it("has every input it took in its conversation, once", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { exchanges, final } = play(played);
        const taken = exchanges.flatMap(([, answer]) =>
          answer.type === "checkpoint_done" ? (answer.inputs ?? []) : [],
        );
        const told = final.messages.flatMap(({ origin }) =>
          origin?.kind === "turn_input" && origin.inputId !== undefined ? [origin.inputId] : [],
        );
        expect(told).toEqual(taken.map(({ id }) => id));
      }),
      { numRuns: 300 },
    );
  });

  // turn §8.21
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

  // turn §8.21
  it("replays to the same states from the same events, kept and read back after any of them", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { events, states } = play(played);
        const keeps: ((state: TurnState) => TurnState)[] = [
          (state) => state,
          (state) => JSON.parse(JSON.stringify(state)),
          (state) => decode(encode(state)),
        ];
        for (const keep of keeps) {
          let { state } = startTurn(configOf(played));
          const replayed = [state];
          for (const event of structuredClone(events) as TurnEvent[]) {
            state = stepTurn(keep(state), event).state;
            replayed.push(state);
          }
          expect(replayed).toEqual(states);
        }
      }),
      { numRuns: 300 },
    );
  });

  it("says at every moment what it waits for, also when it was kept and read back", () => {
    fc.assert(
      fc.property(game, (played) => {
        const { states, waits } = play(played);
        expect(states.map(outstanding)).toEqual(waits);
        expect(states.map((state) => outstanding(decode(encode(state))))).toEqual(waits);
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
