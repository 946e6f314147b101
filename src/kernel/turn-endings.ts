import type { TurnDirectives } from "./directives.js";
import type { AppendNode } from "./graph.js";
import type { StopReason, TurnIssue, TurnOutcome } from "./outcome.js";
import { ask, emit } from "./turn-effects.js";
import type { TurnEffect, TurnState, TurnStep } from "./turn-state.js";

// How turns end: each of these leads to `after_turn`, and from there to the commit.

export function cancelled(state: TurnState, effects: readonly TurnEffect[]): TurnStep {
  const message = state.cancel ?? "The turn was cancelled.";
  return finish(state, { type: "stopped", reason: "cancelled", code: "cancelled", message }, effects);
}

export function abort(
  state: TurnState,
  { pluginId, value }: NonNullable<TurnDirectives["abort"]>,
  effects: readonly TurnEffect[],
): TurnStep {
  return stop(state, "plugin_abort", { kind: "plugin", pluginId, code: value.code, message: value.message }, effects);
}

/** How often plugins may take an answer back, whatever the turn's budget. */
export const MAX_REOPENED = 16;

export function neverContent(state: TurnState, effects: readonly TurnEffect[]): TurnStep {
  const message = `Plugins took the answer back ${MAX_REOPENED} times.`;
  return stop(state, "max_turns", { kind: "plugin", code: "completion_reopened", message }, effects);
}

export function isAtLimit({ step, config: { maxSteps } }: TurnState): boolean {
  return maxSteps !== null && step >= maxSteps;
}

export function turnLimit(state: TurnState, effects: readonly TurnEffect[]): TurnStep {
  const message = `The turn reached its limit of ${state.config.maxSteps} model calls.`;
  return stop(state, "max_turns", { kind: "runtime", code: "max_turns", message }, effects);
}

/** A failure while a cancellation waits is the cancellation's doing. */
export function stopWith(state: TurnState, reason: StopReason, issue: TurnIssue): TurnStep {
  return state.cancel === undefined ? stop(state, reason, issue, []) : cancelled(state, []);
}

export function stop(
  state: TurnState,
  reason: StopReason,
  issue: TurnIssue,
  effects: readonly TurnEffect[],
  said: Pick<Extract<TurnOutcome, { type: "stopped" }>, "toolName" | "value"> = {},
): TurnStep {
  return finish(
    { ...state, issues: [...state.issues, issue] },
    { type: "stopped", reason, code: issue.code, message: issue.message, ...said },
    [...effects, emit({ type: "issue", issue })],
  );
}

/** The protocol or a tool goes on in another frame. */
export function leaveFrame(
  state: TurnState,
  {
    frameId,
    task,
    initialNodes = [],
  }: { readonly frameId: string; readonly task: string; readonly initialNodes?: readonly AppendNode[] },
  effects: readonly TurnEffect[],
): TurnStep {
  return finish({ ...state, initialNodes }, { type: "frame_switch", frameId, task }, effects);
}

export function finish(state: TurnState, outcome: TurnOutcome, effects: readonly TurnEffect[]): TurnStep {
  return ask({ ...state, phase: "after_turn", outcome }, effects);
}
