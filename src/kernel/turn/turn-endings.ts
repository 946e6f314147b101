import { NO_DIRECTIVES, type TurnDirectives } from "../directives/index.js";
import type { StopReason, TurnIssue, TurnOutcome } from "./outcome.js";
import { ask, change, tell } from "./turn-effects.js";
import type { TurnEvent, TurnState, TurnStep } from "./turn-state.js";

// How turns end: each of these leads to `after_turn`, and from there to the commit.

/** The end of a turn that a plugin aborts here or that was cancelled; undefined when it goes on. */
export function interrupted(step: TurnStep, { abort }: TurnDirectives = NO_DIRECTIVES): TurnStep | undefined {
  if (abort !== undefined) {
    const { code, message } = abort.value;
    return stop(step, "plugin_abort", { kind: "plugin", pluginId: abort.pluginId, code, message });
  }
  const { cancel: message } = step.state;
  if (message === undefined) return undefined;
  return finish(step, { type: "stopped", reason: "cancelled", code: "cancelled", message });
}

/** How often plugins may take an answer back, whatever the turn's budget. */
export const MAX_REOPENED = 16;

export function neverContent(step: TurnStep): TurnStep {
  const message = `Plugins took the answer back ${MAX_REOPENED} times.`;
  return stop(step, "max_turns", { kind: "plugin", code: "completion_reopened", message });
}

export function isAtLimit({ step, config: { maxSteps } }: TurnState): boolean {
  return maxSteps !== null && step >= maxSteps;
}

export function turnLimit(step: TurnStep): TurnStep {
  const message = `The turn reached its limit of ${step.state.config.maxSteps} model calls.`;
  return stop(step, "max_turns", { kind: "runtime", code: "max_turns", message });
}

/** A failure while a cancellation waits is the cancellation's doing. */
export function stopWith(step: TurnStep, reason: StopReason, issue: TurnIssue): TurnStep {
  return interrupted(step) ?? stop(step, reason, issue);
}

export function stop(
  step: TurnStep,
  reason: StopReason,
  issue: TurnIssue,
  said: Pick<Extract<TurnOutcome, { type: "stopped" }>, "toolName" | "value"> = {},
): TurnStep {
  const { code, message } = issue;
  const told = tell(change(step, { issues: [...step.state.issues, issue] }), { type: "issue", issue });
  return finish(told, { type: "stopped", reason, code, message, ...said });
}

/** The protocol or a tool goes on in another frame. */
export function leaveFrame(
  step: TurnStep,
  { frameId, task, initialNodes = [] }: Omit<Extract<TurnEvent, { type: "frame_switch" }>, "type">,
): TurnStep {
  return finish(change(step, { initialNodes }), { type: "frame_switch", frameId, task });
}

export function finish(step: TurnStep, outcome: TurnOutcome): TurnStep {
  return ask(step, { phase: "after_turn", outcome });
}
