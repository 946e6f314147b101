import { describe, expect, it } from "vitest";
import { startTurn, stepTurn, type TurnEvent } from "../../../src/kernel/index.js";
import { MAX_REOPENED } from "../../../src/kernel/turn/turn.js";
import type { TurnStep } from "../../../src/kernel/turn/turn-state.js";
import { ANSWER, CONFIG, call, injected, linesOf, namesOf, record, text, turnAfter } from "./turns.js";

const failed = (callId: string) => ({
  ...record(callId),
  output: { status: "failure", failure: { kind: "execution", code: "x", message: "no" } } as const,
});
const begun = [ANSWER.beforeTurn(), ANSWER.prompt];
const then = ({ state }: TurnStep, ...events: TurnEvent[]) =>
  events.reduce<TurnStep>((step, event) => stepTurn(step.state, event), { state, effects: [] });

describe("a turn that is stopped before it begins", () => {
  const issue = { kind: "input", code: "invalid_turn_input", message: "No." } as const;
  const step = startTurn({ ...CONFIG, input: [], stopped: { reason: "invalid_input", issue } });

  it("asks for nothing but its end, and says why", () => {
    expect(namesOf(step)).toEqual(["emit turn_started", "emit issue", "after_turn"]);
    expect(step.state.outcome).toEqual({ type: "stopped", reason: "invalid_input", code: issue.code, message: "No." });
    expect(step.state.issues).toEqual([issue]);
    expect(step.state.messages).toEqual([]);
  });

  it("is stored like any other", () => {
    expect(namesOf(then(step, ANSWER.afterTurn(), ANSWER.captured()))).toEqual(["commit"]);
  });
});

// turn §8.12
describe("the turn's budget", () => {
  const round = [ANSWER.model(call("c")), ANSWER.tools([record("c")]), ANSWER.checkpoint()];

  it.each([1, 2, 5])("of %i model calls is spent exactly then", (maxSteps) => {
    const rounds = Array.from({ length: maxSteps }, () => round).flat();
    const last = turnAfter([...begun, ...rounds.slice(0, -1)], { maxSteps });
    expect(last.state).toMatchObject({ step: maxSteps, outcome: { reason: "max_turns", code: "max_turns" } });
    expect(turnAfter([...begun, ...rounds.slice(0, -3)], { maxSteps }).state.outcome).toBeUndefined();
  });

  it("without a limit is never spent", () => {
    const rounds = Array.from({ length: 200 }, () => round).flat();
    const { state } = turnAfter([...begun, ...rounds], { maxSteps: null });
    expect([state.phase, state.step, state.outcome]).toEqual(["model", 200, undefined]);
  });
});

// turn §8.13
describe("steps in which nothing works", () => {
  const fails = [ANSWER.model(call("c")), ANSWER.tools([failed("c")]), ANSWER.checkpoint()];
  const limits = { maxSteps: null, noProgressLimit: 3 };

  it("end the turn at the limit, not past it", () => {
    const twice = turnAfter([...begun, ...fails, ...fails], limits);
    expect([twice.state.fruitless, twice.state.phase]).toEqual([2, "model"]);
    const third = then(twice, ...fails.slice(0, 2));
    expect(third.state.outcome).toMatchObject({ type: "stopped", reason: "max_turns", code: "no_progress" });
    expect(namesOf(third)).toEqual(["emit issue", "after_turn"]);
  });

  it("count anew after one in which something did, be it one call of several", () => {
    const mixed = [ANSWER.model(call("a"), call("b")), ANSWER.tools([failed("a"), record("b")]), ANSWER.checkpoint()];
    expect(turnAfter([...begun, ...fails, ...fails, ...mixed], limits).state.fruitless).toBe(0);
  });

  it("count with code as with tools", () => {
    const run = (error?: string) => [
      ANSWER.interpreted({ kind: "code", language: "js", code: "1" }, text("1")),
      ANSWER.code(error === undefined ? {} : { error }),
      ANSWER.checkpoint(),
    ];
    expect(turnAfter([...begun, ...run("no"), ...run("no")], limits).state.fruitless).toBe(2);
    expect(turnAfter([...begun, ...run("no"), ...run()], limits).state.fruitless).toBe(0);
    const third = turnAfter([...begun, ...run("no"), ...run("no"), ...run("no").slice(0, 2)], limits);
    expect(third.state.outcome).toMatchObject({ code: "no_progress" });
  });

  it("may be as many as it takes", () => {
    const many = Array.from({ length: 50 }, () => fails).flat();
    expect(turnAfter([...begun, ...many], { maxSteps: null, noProgressLimit: null }).state.outcome).toBeUndefined();
  });
});

describe("a plugin that is never content with the answer", () => {
  const again = [ANSWER.model(text("hi")), ANSWER.checkpoint(injected("p", "Try again."))];

  it("is listened to only so often, whatever the turn's budget", () => {
    const rounds = Array.from({ length: MAX_REOPENED }, () => again).flat();
    const last = turnAfter([...begun, ...rounds], { maxSteps: null });
    expect([last.state.phase, last.state.reopened]).toEqual(["model", MAX_REOPENED]);
    const end = then(last, ...again);
    expect(end.state.outcome).toMatchObject({ type: "stopped", reason: "max_turns", code: "completion_reopened" });
    expect(namesOf(end)).toContain("after_turn");
  });

  it("is not counted for what the host says: that is finite", () => {
    const steered: TurnEvent = { ...ANSWER.checkpoint(), inputs: [{ id: "i", text: "One more." }] } as TurnEvent;
    const rounds = Array.from({ length: MAX_REOPENED + 5 }, () => [ANSWER.model(text("hi")), steered]).flat();
    const { state } = turnAfter([...begun, ...rounds], { maxSteps: null });
    expect([state.phase, state.reopened]).toEqual(["model", 0]);
    expect(linesOf(state).at(-1)).toBe("user: One more.");
  });
});
