import { ACTIVITY_VERSION } from "./activity.js";
import type { CheckpointKind } from "./checkpoint.js";
import type { TurnDirectives } from "./directives.js";
import { asTroupeError } from "./errors.js";
import { endOf, modelIssue } from "./finish-reason.js";
import { addEntry, OWN_SOURCE, UNKNOWN_MODEL } from "./ledger.js";
import type { Message, Origin, Part, Role } from "./messages.js";
import { type ModelCallRecord, type ModelResponse, modelCallIdOf } from "./model.js";
import type { StopReason, TurnIssue, TurnOutcome } from "./outcome.js";
import { partsOfInput } from "./pending-inputs.js";
import { nativeToolStep, type ProtocolStep, partsWithCalls, renderCodeResult } from "./protocol-step.js";
import { renderToolOutput, turnEndOf, wordsOf } from "./tools.js";
import {
  abort,
  cancelled,
  emit,
  finish,
  isAtLimit,
  MAX_REOPENED,
  neverContent,
  stop,
  stopWith,
  summarise,
  turnLimit,
} from "./turn-endings.js";
import type { CheckpointInput, TurnConfig, TurnEffect, TurnEvent, TurnState, TurnStep } from "./turn-state.js";
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
  return {
    state: append(state, "user", config.input, origin),
    effects: [started, { type: "before_turn" }],
  };
}

/** An event that does not answer the outstanding effect changes nothing: late and repeated answers are harmless. */
export function stepTurn(state: TurnState, event: TurnEvent): TurnStep {
  if (event.type === "cancel") return onCancel(state, event.reason);
  switch (state.phase) {
    case "before_turn":
      if (event.type === "refused") return refuse(state);
      return event.type === "before_turn_done" ? onBeforeTurn(state, event.directives) : ignore(state);
    case "prompt":
      if (event.type === "prompt_failed") return stopWith(state, "runtime_error", event.issue);
      return event.type === "prompt_done" ? onPrompt(state, event.syncs ?? false) : ignore(state);
    case "before_model":
      if (event.type === "before_model_failed") return stopWith(state, "runtime_error", event.issue);
      if (event.type === "frame_switch") return onFrameSwitch(state, event);
      return event.type === "before_model_done" ? callModel(state) : ignore(state);
    case "model":
      // Before every call the tools are looked at once more.
      if (event.type === "prompt_failed") return onModelFailed(state, event, "runtime_error");
      if (event.type === "budget_spent") return onModelFailed(state, event, "budget");
      if (event.type === "model_failed") return onModelFailed(state, event, "provider_error");
      return event.type === "model_done" ? onResponse(state, event) : ignore(state);
    case "tools":
      return event.type === "tools_done" ? onTools(state, event) : ignore(state);
    case "code":
      return event.type === "code_done" ? onCode(state, event) : ignore(state);
    case "checkpoint":
      if (event.type === "checkpoint_failed") return stopWith(state, "runtime_error", event.issue);
      return event.type === "checkpoint_done" ? onCheckpoint(state, event) : ignore(state);
    case "after_turn":
      if (event.type === "refused") return refuse(state);
      return event.type === "after_turn_done" ? onAfterTurn(state, event) : ignore(state);
    case "commit":
      if (event.type === "refused") return refuse(state);
      return event.type === "committed" ? onCommitted(state) : ignore(state);
    case "deliver":
      return event.type === "delivered" ? onDelivered(state, event.issues) : ignore(state);
    case "done":
    case "failed":
      return ignore(state);
  }
}

/** What a state waits for. A turn that goes on from a stored state asks for exactly this again, and once. */
export function outstanding(state: TurnState): Exclude<TurnEffect, { type: "emit" }> | undefined {
  switch (state.phase) {
    case "before_turn":
    case "prompt":
      return { type: state.phase };
    case "before_model":
    case "model":
      return { type: state.phase, step: state.step };
    case "tools":
    case "code":
      return state.work;
    case "checkpoint":
      // The phase is never entered without saying which.
      return { type: "checkpoint", checkpoint: state.checkpoint as CheckpointKind };
    case "after_turn":
    case "commit":
    case "deliver":
      return { type: state.phase, summary: summarise(state) };
    case "done":
    case "failed":
      return undefined;
  }
}

function onBeforeTurn(state: TurnState, directives: TurnDirectives): TurnStep {
  const { state: next, effects } = applyDirectives(state, directives);
  if (directives.abort !== undefined) return abort(next, directives.abort, effects);
  if (next.cancel !== undefined) return cancelled(next, effects);
  return { state: { ...next, phase: "prompt" }, effects: [...effects, { type: "prompt" }] };
}

function onPrompt(before: TurnState, syncs: boolean): TurnStep {
  return nextModelCall(before.syncsPrompt === syncs ? before : { ...before, syncsPrompt: syncs });
}

function nextModelCall(state: TurnState): TurnStep {
  if (state.config.asksBeforeModel !== true) return callModel(state);
  if (state.cancel !== undefined) return cancelled(state, []);
  return { state: { ...state, phase: "before_model" }, effects: [{ type: "before_model", step: state.step }] };
}

function onFrameSwitch(state: TurnState, { frameId, task }: { frameId: string; task: string }): TurnStep {
  if (state.cancel !== undefined) return cancelled(state, []);
  return finish(state, { type: "frame_switch", frameId, task }, []);
}

function callModel(state: TurnState): TurnStep {
  if (state.cancel !== undefined) return cancelled(state, []);
  return {
    state: { ...state, phase: "model" },
    effects: [
      emit({ type: "model_call_started", modelCallId: callIdOf(state), step: state.step }),
      { type: "model", step: state.step },
    ],
  };
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

function startWork(state: TurnState, work: NonNullable<TurnState["work"]>, effects: readonly TurnEffect[]): TurnStep {
  return { state: { ...state, phase: work.type, work }, effects: [...effects, work] };
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

/** The answer is there: the last checkpoint decides whether it stands. */
function complete(
  state: TurnState,
  { text, value }: Extract<ProtocolStep, { kind: "finish" }>,
  effects: readonly TurnEffect[],
): TurnStep {
  const outcome: TurnOutcome = { type: "finished", text, ...(value !== undefined && { value }) };
  return {
    state: { ...state, phase: "checkpoint", checkpoint: "before_completion", outcome },
    effects: [...effects, { type: "checkpoint", checkpoint: "before_completion" }],
  };
}

/** What the code printed is the model's next reading, unless the code itself gave the answer. */
function onCode(before: TurnState, { result, directives, issue }: Extract<TurnEvent, { type: "code_done" }>): TurnStep {
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
  return {
    state: { ...state, phase: "checkpoint", checkpoint: "after_work" },
    effects: [...effects, { type: "checkpoint", checkpoint: "after_work" }],
  };
}

function onTools(
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
      return finish(state, { type: "frame_switch", frameId: control.frameId, task: control.task }, effects);
  }
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
  if (state.syncsPrompt) return { state: { ...open, phase: "prompt" }, effects: [...effects, { type: "prompt" }] };
  const call = nextModelCall(open);
  return { state: call.state, effects: [...effects, ...call.effects] };
}

/** What the host put into the running turn: plain user messages, before what plugins say to it. */
function acceptInputs(
  before: TurnState,
  inputs: readonly CheckpointInput[],
): { state: TurnState; effects: TurnEffect[] } {
  if (inputs.length === 0) return { state: before, effects: [] };
  let state = before;
  for (const input of inputs) {
    const origin: Origin = { kind: "turn_input", turnId: before.config.turnId, inputId: input.id };
    state = append(state, "user", partsOfInput(input), origin);
  }
  return { state, effects: [emit({ type: "inputs_accepted", inputIds: inputs.map(({ id }) => id) })] };
}

function onAfterTurn(before: TurnState, event: Extract<TurnEvent, { type: "after_turn_done" }>): TurnStep {
  const { state, effects: deferred } = applyDirectives(before, event.directives);
  const next = { ...state, phase: "commit" as const, issues: [...state.issues, ...event.issues], deferred };
  return { state: next, effects: [{ type: "commit", summary: summarise(next) }] };
}

function onCommitted(state: TurnState): TurnStep {
  const next = { ...state, phase: "deliver" as const };
  return { state: next, effects: [...state.deferred, { type: "deliver", summary: summarise(next) }] };
}

function onDelivered(state: TurnState, issues: readonly TurnIssue[]): TurnStep {
  return { state: { ...state, phase: "done", issues: [...state.issues, ...issues] }, effects: [] };
}

function refuse(state: TurnState): TurnStep {
  return { state: { ...state, phase: "failed" }, effects: [] };
}

function onCancel(state: TurnState, reason: string): TurnStep {
  const closing =
    state.phase === "commit" || state.phase === "deliver" || state.phase === "done" || state.phase === "failed";
  if (closing || state.phase === "after_turn" || state.cancel !== undefined) return ignore(state);
  return { state: { ...state, cancel: reason }, effects: [] };
}

function applyDirectives(
  state: TurnState,
  { messages, events }: TurnDirectives,
): { state: TurnState; effects: TurnEffect[] } {
  const effects: TurnEffect[] = events.map(({ pluginId, value }) =>
    emit({ type: "plugin_event", pluginId, event: value }),
  );
  if (messages.length === 0) return { state, effects };
  let next = state;
  for (const { pluginId, value } of messages) {
    next = append(next, value.role, [{ type: "text", text: value.text }], { kind: "plugin", pluginId });
  }
  effects.push(emit({ type: "messages_injected", pluginIds: messages.map(({ pluginId }) => pluginId) }));
  return { state: next, effects };
}

function append(state: TurnState, role: Role, parts: readonly Part[], origin?: Origin, route?: string): TurnState {
  const id = `${state.config.turnId}.${state.messages.length}`;
  const message: Message = {
    id,
    role,
    parts,
    ...(origin !== undefined && { origin }),
    ...(route !== undefined && { route }),
  };
  return { ...state, messages: [...state.messages, message] };
}

/** The last thing that happened was work the model asked for: an answer with nothing in it is then an end. */
function hasWorked({ messages }: TurnState): boolean {
  const last = messages[messages.length - 1];
  return last?.role === "tool" || last?.origin?.kind === "protocol";
}

function ignore(state: TurnState): TurnStep {
  return { state, effects: [] };
}
