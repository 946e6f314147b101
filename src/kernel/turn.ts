import { ACTIVITY_VERSION } from "./activity.js";
import type { TurnDirectives } from "./directives.js";
import { asTroupeError } from "./errors.js";
import { endOf, modelIssue } from "./finish-reason.js";
import { addEntry, OWN_SOURCE, UNKNOWN_MODEL } from "./ledger.js";
import type { Origin } from "./messages.js";
import { type ModelCallRecord, type ModelResponse, modelCallIdOf } from "./model.js";
import type { StopReason, TurnIssue, TurnOutcome } from "./outcome.js";
import { nativeToolStep, type ProtocolStep, partsWithCalls } from "./protocol-step.js";
import { ask, emit, resultOf } from "./turn-effects.js";
import {
  abort,
  cancelled,
  finish,
  isAtLimit,
  leaveFrame,
  MAX_REOPENED,
  neverContent,
  stop,
  stopWith,
  turnLimit,
} from "./turn-endings.js";
import { acceptInputs, append, applyDirectives } from "./turn-messages.js";
import type { TurnConfig, TurnEffect, TurnEvent, TurnPhase, TurnState, TurnStep } from "./turn-state.js";
import { complete, onCode, onTools, startWork } from "./turn-work.js";
import { addUsage, NO_USAGE, type Usage } from "./usage.js";

export function startTurn(config: TurnConfig): TurnStep {
  const state: TurnState = {
    phase: "before_turn",
    config,
    step: 0,
    messages: [],
    usage: NO_USAGE,
    spent: [],
    modelCallRecords: [],
    toolCalls: [],
    issues: [],
    outcome: undefined,
    initialNodes: [],
    revision: 0,
    checkpoint: undefined,
    fruitless: 0,
    reopened: 0,
    work: undefined,
    syncsPrompt: false,
    cancel: undefined,
    deferred: [],
  };
  const { turnId, turnIndex } = config;
  const started = emit({ type: "turn_started", version: ACTIVITY_VERSION, turnId, turnIndex });
  if (config.stopped !== undefined) return stop(state, config.stopped.reason, config.stopped.issue, [started]);
  const origin: Origin = { kind: "turn_input", turnId: config.turnId };
  return ask(append(state, "user", config.input, origin), [started]);
}

/** What answers the effect each phase waits for. A cancellation is no answer: one may come at any time. */
const ANSWERS: Readonly<Record<TurnPhase, readonly TurnEvent["type"][]>> = {
  before_turn: ["before_turn_done", "refused"],
  prompt: ["prompt_done", "prompt_failed"],
  before_model: ["before_model_done", "before_model_failed", "frame_switch"],
  // Before every call the tools are looked at once more.
  model: ["model_done", "model_failed", "budget_spent", "prompt_failed"],
  tools: ["tools_done"],
  code: ["code_done"],
  checkpoint: ["checkpoint_done", "checkpoint_failed"],
  after_turn: ["after_turn_done", "refused"],
  capture: ["captured", "refused"],
  commit: ["committed", "refused"],
  deliver: ["delivered"],
  done: [],
  failed: [],
};

/** An event that does not answer the outstanding effect changes nothing: late and repeated answers are harmless. */
export function stepTurn(before: TurnState, event: TurnEvent): TurnStep {
  if (event.type === "cancel") return onCancel(before, event.reason);
  if (!ANSWERS[before.phase].includes(event.type)) return ignore(before);
  const state = withIssues(before, event.issues);
  switch (event.type) {
    case "before_turn_done":
      return onBeforeTurn(state, event.directives);
    case "prompt_done":
      return onPrompt(state, event.syncs ?? false);
    case "prompt_failed":
      if (state.phase === "model") return onModelFailed(state, event, "runtime_error");
      return stopWith(state, "runtime_error", event.issue);
    case "before_model_done":
      return callModel(state);
    case "frame_switch":
      return state.cancel === undefined ? leaveFrame(state, event, []) : cancelled(state, []);
    case "model_done":
      return onResponse(state, event);
    case "model_failed":
      return onModelFailed(state, event, "provider_error");
    case "budget_spent":
      return onModelFailed(state, event, "budget");
    case "tools_done":
      return onTools(state, event);
    case "code_done":
      return onCode(state, event);
    case "checkpoint_done":
      return onCheckpoint(state, event);
    case "before_model_failed":
    case "checkpoint_failed":
      return stopWith(state, "runtime_error", event.issue);
    case "after_turn_done":
      return onAfterTurn(state, event.directives);
    case "captured":
      return ask({ ...state, phase: "commit" });
    case "committed":
      return ask({ ...state, phase: "deliver", revision: event.revision }, state.deferred);
    case "delivered":
      return {
        state: { ...state, phase: "done" },
        effects: [emit({ type: "turn_finished", result: resultOf(state) })],
      };
    case "refused":
      return { state: { ...state, phase: "failed" }, effects: [] };
  }
}

function onBeforeTurn(state: TurnState, directives: TurnDirectives): TurnStep {
  const { state: next, effects } = applyDirectives(state, directives);
  if (directives.abort !== undefined) return abort(next, directives.abort, effects);
  if (next.cancel !== undefined) return cancelled(next, effects);
  return ask({ ...next, phase: "prompt" }, effects);
}

function onPrompt(before: TurnState, syncs: boolean): TurnStep {
  return nextModelCall(before.syncsPrompt === syncs ? before : { ...before, syncsPrompt: syncs });
}

function nextModelCall(state: TurnState): TurnStep {
  if (state.config.asksBeforeModel !== true) return callModel(state);
  if (state.cancel !== undefined) return cancelled(state, []);
  return ask({ ...state, phase: "before_model" });
}

function callModel(state: TurnState): TurnStep {
  if (state.cancel !== undefined) return cancelled(state, []);
  const started = emit({ type: "model_call_started", modelCallId: callIdOf(state), step: state.step });
  return ask({ ...state, phase: "model" }, [started]);
}

function onResponse(
  before: TurnState,
  { response, next = nativeToolStep(response), issue, record }: Extract<TurnEvent, { type: "model_done" }>,
): TurnStep {
  const { state, uncounted } = answered(before, response.usage, record);
  const effects: TurnEffect[] = [
    emit({
      type: "model_call_finished",
      modelCallId: callIdOf(before),
      step: before.step,
      reason: response.reason,
      usage: response.usage,
      ...(record !== undefined && { record }),
    }),
  ];
  if (state.cancel !== undefined) return cancelled(state, effects);
  if (uncounted !== undefined) return stop(state, "runtime_error", uncounted, effects);
  const end = endOf(response, state.config.maxContextTokens);
  if (end !== undefined) return stop(state, end.reason, end.issue, effects);
  // The answer was paid for and is counted; without a reading of it there is nothing to keep.
  if (issue !== undefined) return stop(state, "runtime_error", issue, effects);
  if (isEmpty(response, next) && !hasWorked(state)) {
    return stop(state, "provider_error", modelIssue("empty_response", "The model answered with nothing."), effects);
  }
  const parts = partsWithCalls(response, next);
  const said = parts.length === 0 ? state : append(state, "assistant", parts, undefined, record?.route);
  switch (next.kind) {
    case "tools":
      return startWork(said, { type: "tools", calls: next.calls, brokenArgs: next.brokenArgs }, effects);
    case "code":
      return startWork(said, { type: "code", language: next.language, code: next.code }, effects);
    case "finish":
      return complete(said, next, effects);
  }
}

/** A call that was answered is counted, whatever becomes of the answer; `uncounted` says why its usage could not be. */
function answered(
  before: TurnState,
  usage: Usage,
  record: ModelCallRecord | undefined,
): { readonly state: TurnState; readonly uncounted?: TurnIssue } {
  const step = before.step + 1;
  const modelCallRecords = recordsWith(before, record);
  try {
    const spent = addEntry(before.spent, { source: OWN_SOURCE, model: record?.model ?? UNKNOWN_MODEL, usage });
    return { state: { ...before, step, modelCallRecords, usage: addUsage(before.usage, usage), spent } };
  } catch (error) {
    const { code, message } = asTroupeError(error, "token_usage_overflow");
    return { state: { ...before, step, modelCallRecords }, uncounted: modelIssue(code, message) };
  }
}

function recordsWith({ modelCallRecords }: TurnState, record: ModelCallRecord | undefined): readonly ModelCallRecord[] {
  return record === undefined ? modelCallRecords : [...modelCallRecords, record];
}

/** An answer that nobody can use any more was still given, and is paid for. */
function onModelFailed(
  before: TurnState,
  { issue, usage, record }: Omit<Extract<TurnEvent, { type: "model_failed" }>, "type">,
  reason: StopReason,
): TurnStep {
  const state =
    usage === undefined
      ? { ...before, modelCallRecords: recordsWith(before, record) }
      : answered(before, usage, record).state;
  const failed = emit({
    type: "model_call_failed",
    modelCallId: callIdOf(before),
    step: before.step,
    code: issue.code,
    ...(usage !== undefined && { usage }),
    ...(record !== undefined && { record }),
  });
  const step = stopWith(state, reason, issue);
  return { state: step.state, effects: [failed, ...step.effects] };
}

function callIdOf({ config, step }: TurnState): string {
  return modelCallIdOf(config.turnId, step);
}

function isEmpty(response: ModelResponse, next: ProtocolStep): boolean {
  if (next.kind !== "finish" || next.text !== "" || next.value !== undefined) return false;
  return !response.parts.some((part) => part.type === "reasoning");
}

function onCheckpoint(
  before: TurnState,
  { directives, inputs = [] }: Extract<TurnEvent, { type: "checkpoint_done" }>,
): TurnStep {
  const accepted = acceptInputs(before, inputs);
  const { state: next, effects: applied } = applyDirectives(accepted.state, directives);
  const effects = [...accepted.effects, ...applied];
  const state = { ...next, checkpoint: undefined };
  if (directives.abort !== undefined) return abort(state, directives.abort, effects);
  if (state.cancel !== undefined) return cancelled(state, effects);
  const completes = before.checkpoint === "before_completion";
  const reopened = directives.messages.length > 0 || inputs.length > 0;
  if (completes && !reopened) return finish(state, state.outcome as TurnOutcome, effects);
  if (isAtLimit(state)) return turnLimit(state, effects);
  // The host's inputs are finitely many; a plugin that is never content would go on for ever.
  const byPlugin = completes && inputs.length === 0;
  if (byPlugin && state.reopened >= MAX_REOPENED) return neverContent(state, effects);
  const open = { ...state, outcome: undefined, reopened: state.reopened + (byPlugin ? 1 : 0) };
  if (state.syncsPrompt) return ask({ ...open, phase: "prompt" }, effects);
  const call = nextModelCall(open);
  return { state: call.state, effects: [...effects, ...call.effects] };
}

/** What its last hooks said is told once the turn is stored. */
function onAfterTurn(before: TurnState, directives: TurnDirectives): TurnStep {
  const { state, effects: deferred } = applyDirectives(before, directives);
  return ask({ ...state, phase: "capture", deferred });
}

const DECIDED: readonly TurnPhase[] = ["after_turn", "capture", "commit", "deliver", "done", "failed"];

function onCancel(state: TurnState, reason: string): TurnStep {
  if (DECIDED.includes(state.phase) || state.cancel !== undefined) return ignore(state);
  return { state: { ...state, cancel: reason }, effects: [] };
}

/** The last thing that happened was work the model asked for: an answer with nothing in it is then an end. */
function hasWorked({ messages }: TurnState): boolean {
  const last = messages[messages.length - 1];
  return last?.role === "tool" || last?.origin?.kind === "protocol";
}

function withIssues(state: TurnState, issues: readonly TurnIssue[] = []): TurnState {
  return issues.length === 0 ? state : { ...state, issues: [...state.issues, ...issues] };
}

function ignore(state: TurnState): TurnStep {
  return { state, effects: [] };
}
