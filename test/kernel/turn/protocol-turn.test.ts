import { describe, expect, test } from "vitest";
import { type CodeResult, NO_DIRECTIVES, type ProtocolStep, type TurnEvent } from "../../../src/kernel/index.js";
import { ANSWER, aborting, call, ISSUE, injected, linesOf, namesOf, response, TO, text, turnAfter } from "./turns.js";

const answered = (next: ProtocolStep, ...parts: Parameters<typeof response>[0]): TurnEvent => ({
  type: "model_done",
  response: response(parts),
  next,
});
const code: ProtocolStep = { kind: "code", language: "calc", code: "print 1" };
const ran = (result: Partial<CodeResult> = {}, directives = NO_DIRECTIVES): TurnEvent => ({
  type: "code_done",
  result: { observations: [], toolCalls: [], durationMs: 1, ...result },
  directives,
});
const TO_CODE = [...TO.model, answered(code, text("run this"))];

describe("code", () => {
  test("is run when the protocol says so, and what it printed is the next message", () => {
    const running = turnAfter(TO_CODE);
    expect(running.effects.at(-1)).toEqual({ type: "code", language: "calc", code: "print 1" });
    const { state } = turnAfter([...TO_CODE, ran({ observations: ["1", "2"] })]);
    expect(linesOf(state)).toEqual(["user: hello", "assistant: run this", "user: 1\n2"]);
    expect(state.messages.at(-1)?.origin).toEqual({ kind: "protocol" });
    expect(namesOf(turnAfter([...TO_CODE, ran()]))).toEqual(["checkpoint after_work"]);
  });

  test("that fails or prints nothing says so", () => {
    expect(linesOf(turnAfter([...TO_CODE, ran({ observations: ["1"], error: "no" })]).state).at(-1)).toBe(
      "user: 1\n[Code failed]\nno",
    );
    expect(linesOf(turnAfter([...TO_CODE, ran()]).state).at(-1)).toBe("user: [The code printed nothing]");
  });

  test.each([
    ["a text", "yes", "yes"],
    ["null", null, "null"],
    ["an object", { a: 1 }, '{"a":1}'],
  ])("can end the turn with a value: %s", (_, value, said) => {
    const { state } = turnAfter([...TO_CODE, ran({ terminalFinish: { value } }), ANSWER.checkpoint()]);
    expect(state.outcome).toEqual({ type: "finished", text: said, value });
  });

  test("may end the turn as a failure, with what went wrong as its value", () => {
    const value = { missing: "units" };
    const step = turnAfter([...TO_CODE, ran({ terminalFinish: { value, failed: true } })]);
    expect(step.state.outcome).toEqual({
      type: "stopped",
      reason: "submitted_error",
      code: "submitted_error",
      message: '{"missing":"units"}',
      value,
    });
    expect(namesOf(step)).toEqual(["emit issue", "after_turn"]);
  });

  test("that ended the turn is reopened by a message before completion", () => {
    const { state } = turnAfter([
      ...TO_CODE,
      ran({ terminalFinish: { value: 1 } }),
      ANSWER.checkpoint(injected("p", "go on")),
    ]);
    expect([state.phase, state.outcome]).toEqual(["model", undefined]);
  });

  test("during which a tool hook aborts ends the turn, also when the code had an answer", () => {
    const { state } = turnAfter([...TO_CODE, ran({ terminalFinish: { value: 1 } }, aborting("p", "no"))]);
    expect(state.outcome).toMatchObject({ type: "stopped", reason: "plugin_abort", code: "no" });
  });
});

describe("an answer", () => {
  test("keeps no tool calls that the protocol does not make", () => {
    const { state } = turnAfter([...TO.model, answered(code, text("run this"), call("c1"))]);
    expect(linesOf(state)).toEqual(["user: hello", "assistant: run this"]);
    const alone = turnAfter([...TO.model, answered({ kind: "finish", text: "hi" }, call("c1"))]);
    expect(linesOf(alone.state)).toEqual(["user: hello"]);
  });

  test("of which the protocol makes nothing stops the turn: it is counted, and not kept", () => {
    const unread: TurnEvent = { type: "model_done", response: response([call("c1")]), issue: ISSUE };
    const { state } = turnAfter([...TO.model, unread]);
    expect(state.outcome).toMatchObject({ type: "stopped", reason: "runtime_error", code: "hook_failed" });
    expect([state.step, state.usage.inputTokens]).toEqual([1, 10]);
    expect(linesOf(state)).toEqual(["user: hello"]);
  });

  test("with nothing in it is an end after code, and a fault otherwise", () => {
    const empty = answered({ kind: "finish", text: "" });
    const after = turnAfter([...TO_CODE, ran(), ANSWER.checkpoint(), empty, ANSWER.checkpoint()]);
    expect(after.state.outcome).toEqual({ type: "finished", text: "" });
    expect(turnAfter([...TO.model, empty]).state.outcome).toMatchObject({ code: "empty_response" });
  });
});

describe("a protocol that is asked before every model call", () => {
  const ASKS = { asksBeforeModel: true };
  const switched: TurnEvent = { type: "frame_switch", frameId: "second", task: "go on" };

  test("is asked, and then the model is", () => {
    const asked = turnAfter(TO.model, ASKS);
    expect(namesOf(asked)).toEqual(["before_model"]);
    expect(namesOf(turnAfter([...TO.model, { type: "before_model_done" }], ASKS))).toEqual([
      "emit model_call_started",
      "model",
    ]);
  });

  test("can leave for another frame instead, or fail", () => {
    const { state } = turnAfter([...TO.model, switched], ASKS);
    expect(state.outcome).toEqual({ type: "frame_switch", frameId: "second", task: "go on" });
    expect([state.phase, state.step]).toEqual(["after_turn", 0]);
    const failed = turnAfter([...TO.model, { type: "before_model_failed", issue: ISSUE }], ASKS);
    expect(failed.state.outcome).toMatchObject({ reason: "runtime_error", code: "hook_failed" });
  });

  test("is not obeyed when the turn is cancelled meanwhile", () => {
    const { state } = turnAfter([...TO.model, ANSWER.cancel(), switched], ASKS);
    expect(state.outcome).toMatchObject({ type: "stopped", reason: "cancelled" });
  });
});
