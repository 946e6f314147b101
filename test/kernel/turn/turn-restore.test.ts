import { describe, expect, it } from "vitest";
import {
  stepTurn,
  type TurnEffect,
  type TurnEvent,
  type TurnState,
  type TurnSummary,
} from "../../../src/kernel/index.js";
import { outstanding } from "../../../src/kernel/turn/turn-steps.js";
import { decode, encode } from "../../../src/wire/index.js";
import {
  ANSWER,
  CODE,
  call,
  injected,
  linesOf,
  namesOf,
  PLACES,
  type Place,
  record,
  TO,
  text,
  turnAfter,
  turnAt,
  USAGE,
} from "./turns.js";

/** The ways a state can be kept: as JSON, and as the bytes the store has. */
const KEEPING: [string, (state: TurnState) => TurnState][] = [
  ["JSON", (state) => JSON.parse(JSON.stringify(state))],
  ["bytes", (state) => decode(encode(state))],
];

const SUMMARY: TurnSummary = {
  turnId: "t1",
  turnIndex: 0,
  outcome: { type: "finished", text: "hi" },
  text: "hi",
  usage: USAGE,
  modelCalls: 1,
  toolCalls: [],
  issues: [],
};
const CALLS = { calls: [{ callId: "c1", toolName: "look", args: {} }], brokenArgs: {} };
const WAITED_FOR: Readonly<Record<Place, TurnEffect | undefined>> = {
  before_turn: { type: "before_turn" },
  prompt: { type: "prompt" },
  before_model: { type: "before_model", step: 0 },
  model: { type: "model", step: 0 },
  tools: { type: "tools", ...CALLS },
  code: { type: "code", language: "js", code: "1 + 1" },
  after_work: { type: "checkpoint", checkpoint: "after_work" },
  before_completion: { type: "checkpoint", checkpoint: "before_completion" },
  synced_after_work: { type: "checkpoint", checkpoint: "after_work" },
  synced_before_completion: { type: "checkpoint", checkpoint: "before_completion" },
  after_turn: { type: "after_turn", summary: SUMMARY },
  capture: { type: "capture" },
  commit: {
    type: "commit",
    summary: SUMMARY,
    messages: [
      { id: "t1.0", role: "user", parts: [text("hello")], origin: { kind: "turn_input", turnId: "t1" } },
      { id: "t1.1", role: "assistant", parts: [text("hi")] },
    ],
    spent: [{ source: "turn", model: "unknown", usage: USAGE }],
    modelCallRecords: [],
    initialNodes: [],
  },
  deliver: { type: "deliver", summary: SUMMARY, revision: 1 },
  done: undefined,
  failed: undefined,
};

describe.each(KEEPING)("a turn that is kept as %s and goes on from there", (_, keep) => {
  it.each(PLACES)("at %s asks again for what it waited for", (place) => {
    const step = turnAt(place);
    expect(outstanding(keep(step.state))).toEqual(WAITED_FOR[place]);
    // It is the very thing that was asked for when the turn came here.
    expect(step.effects.filter(({ type }) => type !== "emit").at(-1)).toEqual(WAITED_FOR[place]);
  });

  const resumed = (events: readonly TurnEvent[], ...more: readonly TurnEvent[]) =>
    more.reduce((step, event) => stepTurn(keep(step.state), event), turnAfter(events));

  // turn §8.3
  it("while the model is called calls the model again, under the same number, and takes one answer", () => {
    const second = [ANSWER.beforeTurn(), ANSWER.prompt, ANSWER.model(call("c1")), ANSWER.tools([record("c1")])];
    const waiting = resumed(second, ANSWER.checkpoint());
    expect(outstanding(keep(waiting.state))).toEqual({ type: "model", step: 1 });
    const answered = resumed([...second, ANSWER.checkpoint()], ANSWER.model(text("hi")));
    const again = stepTurn(keep(answered.state), ANSWER.model(text("hi, again")));
    expect(again).toEqual({ state: keep(answered.state), effects: [] });
    expect([again.state.step, linesOf(again.state).at(-1)]).toEqual([2, "assistant: hi"]);
  });

  // turn §8.4
  it("after the model has answered asks for the checkpoint, never for a second answer", () => {
    const answered = resumed([ANSWER.beforeTurn(), ANSWER.prompt], ANSWER.model(text("hi")));
    expect(outstanding(keep(answered.state))).toEqual({ type: "checkpoint", checkpoint: "before_completion" });
    const passed = stepTurn(keep(answered.state), ANSWER.checkpoint());
    expect(namesOf(passed)).toEqual(["after_turn"]);
    expect(passed.state.outcome).toEqual({ type: "finished", text: "hi" });
  });

  // turn §8.5
  it("in the middle of its tool calls asks for the whole batch, under the same ids, and the model reads it once", () => {
    const broken: TurnEvent = {
      type: "model_done",
      response: {
        parts: [call("c1", { city: "Oslo" }), call("c2", "{oops")],
        reason: "tool_calls",
        usage: USAGE,
        brokenArgs: { c2: "{oops" },
      },
    };
    const waiting = resumed([ANSWER.beforeTurn(), ANSWER.prompt], broken);
    expect(outstanding(keep(waiting.state))).toEqual({
      type: "tools",
      calls: [
        { callId: "c1", toolName: "look", args: { city: "Oslo" } },
        { callId: "c2", toolName: "look", args: "{oops" },
      ],
      brokenArgs: { c2: "{oops" },
    });
    const failure = { status: "failure", failure: { kind: "execution", code: "no_map", message: "None." } } as const;
    const records = ANSWER.tools([record("c1", "rain"), { ...record("c2"), output: failure }]);
    const worked = stepTurn(keep(waiting.state), records);
    expect(stepTurn(keep(worked.state), records)).toEqual({ state: keep(worked.state), effects: [] });
    expect(linesOf(stepTurn(keep(worked.state), ANSWER.checkpoint()).state)).toEqual([
      "user: hello",
      "assistant: call c1 | call c2",
      "tool: rain | [Tool execution failed]\nno_map: None.",
    ]);
    expect(worked.state.work).toBeUndefined();
  });

  // turn §8.6
  it("while code runs has the code, its language and what came before", () => {
    const waiting = resumed([ANSWER.beforeTurn(), ANSWER.prompt], ANSWER.interpreted(CODE, text("1 + 1")));
    expect(outstanding(keep(waiting.state))).toEqual({ type: "code", language: "js", code: "1 + 1" });
    const ran = stepTurn(keep(waiting.state), ANSWER.code({ observations: ["2"] }));
    expect(linesOf(ran.state)).toEqual(["user: hello", "assistant: 1 + 1", "user: 2"]);
    expect([outstanding(ran.state), ran.state.work]).toEqual([
      { type: "checkpoint", checkpoint: "after_work" },
      undefined,
    ]);
  });

  it("with a cancellation that waits ends with the next answer", () => {
    const waiting = resumed([ANSWER.beforeTurn(), ANSWER.prompt], ANSWER.cancel("Enough."));
    expect(outstanding(keep(waiting.state))).toEqual({ type: "model", step: 0 });
    expect(stepTurn(keep(waiting.state), ANSWER.model(text("hi"))).state.outcome).toMatchObject({
      reason: "cancelled",
      message: "Enough.",
    });
  });

  it("behind its last hooks still tells the host what they said, once it is stored", () => {
    const waiting = resumed(TO.after_turn, ANSWER.afterTurn(injected("p", "for next time")));
    const captured = stepTurn(keep(waiting.state), ANSWER.captured());
    expect(namesOf(stepTurn(keep(captured.state), ANSWER.committed))).toEqual(["emit messages_injected", "deliver"]);
  });
});
