import type { Part } from "./messages.js";
import type { TurnIssue, TurnOutcome } from "./outcome.js";
import { type ProtocolStep, renderCodeResult } from "./protocol-step.js";
import { renderToolOutput, turnEndOf, wordsOf } from "./tools.js";
import { ask } from "./turn-effects.js";
import { abort, cancelled, finish, isAtLimit, leaveFrame, stop, turnLimit } from "./turn-endings.js";
import { append, applyDirectives } from "./turn-messages.js";
import type { TurnEffect, TurnEvent, TurnState, TurnStep } from "./turn-state.js";

// What a turn makes of work: the tools and the code the model asked for, and what they came to.

export function startWork(
  state: TurnState,
  work: NonNullable<TurnState["work"]>,
  effects: readonly TurnEffect[],
): TurnStep {
  return ask({ ...state, phase: work.type, work }, effects);
}

export function onTools(
  before: TurnState,
  { records, directives, issue }: Extract<TurnEvent, { type: "tools_done" }>,
): TurnStep {
  const parts: Part[] = records.map(({ callId, toolName, output, modelText }) => ({
    type: "tool_result",
    callId,
    toolName,
    status: output.status,
    text: modelText ?? renderToolOutput(output),
  }));
  // Every call has its result before anything else happens, so the history stays acceptable to every provider.
  const worked = { ...before, work: undefined, toolCalls: [...before.toolCalls, ...records] };
  const withResults = parts.length === 0 ? worked : append(worked, "tool", parts);
  const { state, effects } = applyDirectives(withResults, directives);
  if (directives.abort !== undefined) return abort(state, directives.abort, effects);
  if (state.cancel !== undefined) return cancelled(state, effects);
  if (issue !== undefined) return stop(state, "runtime_error", issue, effects);
  const end = turnEndOf(records);
  if (end !== undefined) return endByTool(state, end, effects);
  const fruitful = records.some(({ output }) => output.status === "success");
  return afterWork(state, fruitful, effects);
}

/** What the code printed is the model's next reading, unless the code itself gave the answer. */
export function onCode(
  before: TurnState,
  { result, directives, issue }: Extract<TurnEvent, { type: "code_done" }>,
): TurnStep {
  const text = renderCodeResult(result);
  const ran = { ...before, work: undefined, toolCalls: [...before.toolCalls, ...result.toolCalls] };
  const observed = append(ran, "user", [{ type: "text", text }], { kind: "protocol" });
  const { state, effects } = applyDirectives(observed, directives);
  if (directives.abort !== undefined) return abort(state, directives.abort, effects);
  if (state.cancel !== undefined) return cancelled(state, effects);
  if (issue !== undefined) return stop(state, "runtime_error", issue, effects);
  // A tool that ends the turn does so wherever it was called.
  const end = turnEndOf(result.toolCalls);
  if (end !== undefined) return endByTool(state, end, effects);
  if (result.terminalFinish !== undefined) {
    const { value, failed = false } = result.terminalFinish;
    if (failed) {
      const submitted: TurnIssue = { kind: "runtime", code: "submitted_error", message: wordsOf(value) };
      return stop(state, "submitted_error", submitted, effects, { value });
    }
    return complete(state, { kind: "finish", text: wordsOf(value), value }, effects);
  }
  return afterWork(state, result.error === undefined, effects);
}

/** The answer is there: the last checkpoint decides whether it stands. */
export function complete(
  state: TurnState,
  { text, value }: Extract<ProtocolStep, { kind: "finish" }>,
  effects: readonly TurnEffect[],
): TurnStep {
  const outcome: TurnOutcome = { type: "finished", text, ...(value !== undefined && { value }) };
  return ask({ ...state, phase: "checkpoint", checkpoint: "before_completion", outcome }, effects);
}

/** A tool ended the turn: nothing is asked any more, not even a checkpoint. */
function endByTool(
  state: TurnState,
  { toolName, control }: NonNullable<ReturnType<typeof turnEndOf>>,
  effects: readonly TurnEffect[],
): TurnStep {
  switch (control.kind) {
    case "finish": {
      const { value, text = wordsOf(value) } = control;
      return finish(state, { type: "finished", text, value, toolName }, effects);
    }
    case "fail": {
      const { code, message, value } = control;
      const said = { toolName, ...(value !== undefined && { value }) };
      return stop(state, "tool_error", { kind: "tool", code, message }, effects, said);
    }
    case "switch_agent_frame":
      return leaveFrame(state, control, effects);
  }
}

/** `fruitful`: something of it went well. */
function afterWork(before: TurnState, fruitful: boolean, effects: readonly TurnEffect[]): TurnStep {
  const fruitless = fruitful ? 0 : before.fruitless + 1;
  const state = before.fruitless === fruitless ? before : { ...before, fruitless };
  if (isAtLimit(state)) return turnLimit(state, effects);
  const limit = state.config.noProgressLimit ?? null;
  if (limit !== null && fruitless >= limit) {
    const message = `Nothing the model tried in ${limit} steps worked.`;
    return stop(state, "max_turns", { kind: "runtime", code: "no_progress", message }, effects);
  }
  return ask({ ...state, phase: "checkpoint", checkpoint: "after_work" }, effects);
}
