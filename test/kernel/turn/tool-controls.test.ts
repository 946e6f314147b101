import { describe, expect, it } from "vitest";
import type { ToolControl, ToolOutput, ToolRecord } from "../../../src/kernel/index.js";
import { turnEndOf } from "../../../src/kernel/tools/tools.js";
import { ANSWER, aborting, call, injected, linesOf, namesOf, record, TO, turnAfter } from "./turns.js";

const FINISH: ToolControl = { kind: "finish", value: { sum: 3 } };
const FAIL: ToolControl = { kind: "fail", code: "no_luck", message: "It rained." };
const SWITCH: ToolControl = { kind: "switch_agent_frame", frameId: "f2", task: "Go on.", initialNodes: [] };

const ended = (callId: string, output: ToolOutput, toolName = "look"): ToolRecord => ({
  ...record(callId),
  toolName,
  output,
});
const controlled = (callId: string, control: ToolControl, toolName?: string) =>
  ended(callId, { status: "success", value: "said so", control }, toolName);
const failed = (callId: string, endsTurn?: true) =>
  ended(callId, {
    status: "failure",
    failure: { kind: "timeout", code: "late", message: "It was late.", ...(endsTurn && { endsTurn }) },
  });

/** A turn whose step ended with these results. */
const stepWith = (records: readonly ToolRecord[], directives?: Parameters<typeof ANSWER.tools>[1]) =>
  turnAfter([
    ...TO.model,
    ANSWER.model(...records.map(({ callId }) => call(callId))),
    ANSWER.tools(records, directives),
  ]);

describe("a tool that ends the turn", () => {
  it.each([
    [FINISH, { type: "finished", text: '{"sum":3}', value: { sum: 3 }, toolName: "add" }, []],
    [{ ...FINISH, text: "Three." }, { type: "finished", text: "Three.", value: { sum: 3 }, toolName: "add" }, []],
    [
      { kind: "finish", value: "in words" },
      { type: "finished", text: "in words", value: "in words", toolName: "add" },
      [],
    ],
    [
      FAIL,
      { type: "stopped", reason: "tool_error", code: "no_luck", message: "It rained.", toolName: "add" },
      ["emit issue"],
    ],
    [
      { ...FAIL, value: { mm: 40 } },
      {
        type: "stopped",
        reason: "tool_error",
        code: "no_luck",
        message: "It rained.",
        toolName: "add",
        value: { mm: 40 },
      },
      ["emit issue"],
    ],
    [SWITCH, { type: "frame_switch", frameId: "f2", task: "Go on." }, []],
  ] as const)("with %j does so without a checkpoint, its result in the history", (control, outcome, told) => {
    const step = stepWith([controlled("c1", control, "add")]);
    expect(step.state.outcome).toEqual(outcome);
    expect(namesOf(step)).toEqual([...told, "after_turn"]);
    expect(linesOf(step.state)).toEqual(["user: hello", "assistant: call c1", "tool: said so"]);
  });

  it("as a failure is an issue of the turn", () => {
    expect(stepWith([controlled("c1", FAIL)]).state.issues).toEqual([
      { kind: "tool", code: "no_luck", message: "It rained." },
    ]);
  });

  it("is the first one in call order, whichever ended first; a failure in front of it is none", () => {
    const first = { ...controlled("c2", SWITCH), completed: 2 };
    const records = [failed("c1"), first, { ...controlled("c3", FINISH), completed: 0 }];
    expect(stepWith(records).state.outcome).toMatchObject({ type: "frame_switch" });
    expect(stepWith(records).state.toolCalls).toEqual(records);
  });

  it("may be one whose answer the turn cannot do without", () => {
    const records = [record("c1"), failed("c2", true), controlled("c3", FINISH)];
    expect(stepWith(records).state.outcome).toEqual({
      type: "stopped",
      reason: "tool_error",
      code: "late",
      message: "It was late.",
      toolName: "look",
    });
  });

  it("does not undo a cancellation or an abort, and what hooks enqueued stays", () => {
    const records = [controlled("c1", FINISH)];
    const cancelled = turnAfter([...TO.tools, ANSWER.cancel(), ANSWER.tools(records)]).state;
    expect(cancelled.outcome).toMatchObject({ reason: "cancelled" });
    expect(stepWith(records, aborting("p", "no")).state.outcome).toMatchObject({ reason: "plugin_abort" });
    expect(linesOf(stepWith(records, injected("p", "note")).state).at(-1)).toBe("user: note");
  });

  it("does so with the last model call the turn has, too", () => {
    const { state } = turnAfter([...TO.tools, ANSWER.tools([controlled("c1", FINISH)])], { maxSteps: 1 });
    expect(state.outcome).toMatchObject({ type: "finished" });
  });

  it("may have been called by code, before the code's own end", () => {
    const result = { toolCalls: [record("c1"), controlled("c2", FINISH)], terminalFinish: { value: "the code's" } };
    const step = turnAfter([...TO.code, ANSWER.code(result)]);
    expect(step.state.outcome).toMatchObject({ type: "finished", value: { sum: 3 }, toolName: "look" });
    expect(namesOf(step)).toEqual(["after_turn"]);
  });
});

describe("results that do not end the turn", () => {
  it("say so", () => {
    expect(turnEndOf([record("c1"), failed("c2")])).toBeUndefined();
  });

  // turn §8.17
  it("of several calls come to one checkpoint", () => {
    expect(namesOf(stepWith([record("c1"), record("c2"), record("c3")]))).toEqual(["checkpoint after_work"]);
  });

  // turn §8.18
  it("may be failures: the model reads them and goes on", () => {
    const step = stepWith([failed("c1")]);
    expect(namesOf(step)).toEqual(["checkpoint after_work"]);
    expect(linesOf(step.state).at(-1)).toBe("tool: [Tool execution failed]\nlate: It was late.");
    expect(step.state.issues).toEqual([]);
  });
});
