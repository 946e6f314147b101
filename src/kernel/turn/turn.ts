import { asTroupeError } from "../errors.js";
import { type Part, shownTexts } from "../history/index.js";
import {
  type ModelCallRecord,
  type ModelResponse,
  modelCallIdOf,
  nativeToolStep,
  type ProtocolStep,
  partsWithCalls,
  renderCodeResult,
} from "../model/index.js";
import {
  renderToolOutput,
  storedContent,
  type ToolRecord,
  turnEndOf,
  wordsOf,
  wordsOfContent,
} from "../tools/index.js";
import { addEntry, addUsage, NO_USAGE, OWN_SOURCE, UNKNOWN_MODEL, type Usage } from "../usage/index.js";
import { ACTIVITY_VERSION, type StopReason, type TurnIssue, type TurnOutcome } from "./activity.js";
import type { TurnConfig, TurnEvent, TurnPhase, TurnState, TurnStep } from "./turn-state.js";
import {
  acceptInputs,
  append,
  applyDirectives,
  ask,
  change,
  endOf,
  finish,
  interrupted,
  isAtLimit,
  leaveFrame,
  modelIssue,
  resultOf,
  stop,
  stopWith,
  tell,
  turnLimit,
} from "./turn-steps.js";

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
    nextCall: undefined,
    repaired: false,
    syncsPrompt: false,
    cancel: undefined,
    deferred: [],
    at: config.at,
  };
  const { turnId, turnIndex, input, stopped } = config;
  const version = ACTIVITY_VERSION;
  const begun = tell({ state, effects: [] }, { type: "turn_started", version, turnId, turnIndex });
  if (stopped !== undefined) return stop(begun, stopped.reason, stopped.issue);
  return ask(append(begun, "user", input, { origin: { kind: "turn_input", turnId } }), { phase: "before_turn" });
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

/**
 * An event that does not answer the outstanding effect changes nothing: late and repeated answers are harmless. `now`: when
 * it happened.
 */
export function stepTurn(state: TurnState, event: TurnEvent, now?: number): TurnStep {
  const unchanged: TurnStep = { state, effects: [] };
  if (event.type === "cancel") return onCancel(unchanged, event);
  if (!ANSWERS[state.phase].includes(event.type)) return unchanged;
  const { issues = [] } = event;
  const step = withNews(unchanged, issues, SAYS_NOTHING_NEW.includes(event.type) ? state.at : (now ?? state.at));
  switch (event.type) {
    case "before_turn_done": {
      const begun = applyDirectives(step, event.directives);
      return interrupted(begun, event.directives) ?? ask(begun, { phase: "prompt" });
    }
    case "prompt_done":
      return nextModelCall(change(step, { syncsPrompt: event.syncs ?? false }));
    case "before_model_done":
      return callModel(step);
    case "frame_switch":
      return interrupted(step) ?? leaveFrame(step, event);
    case "prompt_failed":
      if (state.phase === "model") return onModelFailed(step, event, "runtime_error");
      return stopWith(step, "runtime_error", event.issue);
    case "before_model_failed":
    case "checkpoint_failed":
      return stopWith(step, "runtime_error", event.issue);
    case "model_done":
      return onResponse(step, event);
    case "model_failed":
      return onModelFailed(step, event, "provider_error");
    case "budget_spent":
      return onModelFailed(step, event, "budget");
    case "tools_done":
      return onTools(step, event);
    case "code_done":
      return onCode(step, event);
    case "checkpoint_done":
      return onCheckpoint(step, event);
    case "after_turn_done": {
      // What the last hooks said is told once the turn is stored.
      const { state: decided, effects: deferred } = applyDirectives(step, event.directives);
      return ask({ state: decided, effects: [] }, { phase: "capture", deferred });
    }
    case "captured":
      return ask(step, { phase: "commit" });
    case "committed":
      return ask({ ...step, effects: state.deferred }, { phase: "deliver", revision: event.revision });
    case "delivered": {
      const done = change(step, { phase: "done" });
      return tell(done, { type: "turn_finished", result: resultOf(done.state) });
    }
    case "refused":
      return change(step, { phase: "failed" });
  }
}

/** Answers because of which no message is said: when they came is of no interest. */
const SAYS_NOTHING_NEW: readonly TurnEvent["type"][] = [
  "prompt_done",
  "before_model_done",
  "captured",
  "committed",
  "delivered",
];

function withNews(step: TurnStep, issues: readonly TurnIssue[], at: number | undefined): TurnStep {
  if (issues.length > 0) return change(step, { issues: [...step.state.issues, ...issues], at });
  return at === step.state.at ? step : change(step, { at });
}

function nextModelCall(step: TurnStep): TurnStep {
  if (step.state.config.asksBeforeModel !== true) return callModel(step);
  return interrupted(step) ?? ask(step, { phase: "before_model" });
}

function callModel(step: TurnStep): TurnStep {
  const started = { type: "model_call_started", ...callOf(step) } as const;
  return interrupted(step) ?? ask(tell(step, started), { phase: "model" });
}

function onResponse(before: TurnStep, event: Extract<TurnEvent, { type: "model_done" }>): TurnStep {
  const { response, next = nativeToolStep(response), issue, record } = event;
  const { reason, usage } = response;
  const { counted, uncounted } = answered(before, usage, record);
  const told = { type: "model_call_finished", ...callOf(before), reason, usage, ...(record && { record }) } as const;
  const step = tell(counted, told);
  const ended = interrupted(keepShown(step, response.parts));
  if (ended !== undefined) return ended;
  if (uncounted !== undefined) return stop(step, "runtime_error", uncounted);
  const end = endOf(response, step.state.config.maxContextTokens);
  if (end !== undefined) return stop(step, end.reason, end.issue);
  // The answer was paid for and is counted; without a reading of it there is nothing to keep.
  if (issue !== undefined) return stop(step, "runtime_error", issue);
  if (isEmpty(response, next) && !hasWorked(step.state))
    return stop(step, "provider_error", modelIssue("empty_response", "The model answered with nothing."));
  const parts = partsWithCalls(response, next);
  const said = parts.length === 0 ? step : append(step, "assistant", parts, record && { route: record.route });
  switch (next.kind) {
    case "tools":
      return startWork(said, { type: "tools", calls: next.calls, brokenArgs: next.brokenArgs });
    case "code":
      return startWork(said, { type: "code", language: next.language, code: next.code });
    case "finish":
      return event.misfit === undefined ? complete(said, next) : repair(said, event.misfit);
  }
}

/** The model is told once what is wrong with the form of its answer. */
function repair(step: TurnStep, misfit: string): TurnStep {
  if (step.state.repaired || isAtLimit(step.state))
    return stop(step, "invalid_output", modelIssue("output_invalid", misfit));
  const text = `${misfit} Answer again, completely, in the form that was asked for.`;
  const told = append(step, "user", [{ type: "text", text }], { origin: { kind: "protocol" } });
  const again = change(told, { repaired: true });
  return again.state.syncsPrompt ? ask(again, { phase: "prompt" }) : nextModelCall(again);
}

/** A call that was answered is counted, whatever becomes of the answer; `uncounted` says why its usage could not be. */
function answered(
  before: TurnStep,
  usage: Usage,
  record: ModelCallRecord | undefined,
): { readonly counted: TurnStep; readonly uncounted?: TurnIssue } {
  const counted = change(withRecord(before, record), { step: before.state.step + 1, nextCall: undefined });
  try {
    const model = record?.model ?? UNKNOWN_MODEL;
    const spent = addEntry(before.state.spent, { source: OWN_SOURCE, model, usage });
    return { counted: change(counted, { usage: addUsage(before.state.usage, usage), spent }) };
  } catch (error) {
    const { code, message } = asTroupeError(error, "token_usage_overflow");
    return { counted, uncounted: modelIssue(code, message) };
  }
}

function withRecord(step: TurnStep, record: ModelCallRecord | undefined): TurnStep {
  return record ? change(step, { modelCallRecords: [...step.state.modelCallRecords, record] }) : step;
}

/** An answer that nobody can use any more was still given, and is paid for. */
function onModelFailed(
  before: TurnStep,
  { issue, usage, record, shown = [] }: Omit<Extract<TurnEvent, { type: "model_failed" }>, "type">,
  reason: StopReason,
): TurnStep {
  const step = usage === undefined ? withRecord(before, record) : answered(before, usage, record).counted;
  const more = { ...(usage && { usage }), ...(record && { record }) };
  const told = tell(step, { type: "model_call_failed", ...callOf(before), code: issue.code, ...more });
  return stopWith(keepShown(told, shown), reason, issue);
}

/**
 * What somebody has read of an answer its turn was cancelled in, when whoever cancelled wants it kept: text alone, because
 * reasoning that was cut off and calls nobody makes are refused by providers.
 */
function keepShown(step: TurnStep, shown: readonly Part[]): TurnStep {
  if (step.state.cancel?.keepPartial !== true) return step;
  const texts = shownTexts(shown);
  return texts.length === 0 ? step : append(step, "assistant", texts, { interrupted: true });
}

function callOf({ state: { config, step } }: TurnStep): { readonly modelCallId: string; readonly step: number } {
  return { modelCallId: modelCallIdOf(config.turnId, step), step };
}

function isEmpty(response: ModelResponse, next: ProtocolStep): boolean {
  if (next.kind !== "finish" || next.text !== "" || next.value !== undefined) return false;
  return response.parts.every(({ type }) => SAYS_NOTHING.includes(type));
}

/** Of what else an answer may have, each is something: reasoning, a file, what the provider did itself. */
const SAYS_NOTHING: readonly Part["type"][] = ["text", "tool_call", "source"];

/** The last thing that happened was work the model asked for: an answer with nothing in it is then an end. */
function hasWorked({ messages }: TurnState): boolean {
  const last = messages[messages.length - 1];
  return last?.role === "tool" || last?.origin?.kind === "protocol";
}

/** How often plugins may take an answer back, whatever the turn's budget. */
export const MAX_REOPENED = 16;

function onCheckpoint(before: TurnStep, event: Extract<TurnEvent, { type: "checkpoint_done" }>): TurnStep {
  const { directives, inputs = [] } = event;
  const step = change(applyDirectives(acceptInputs(before, inputs), directives), { checkpoint: undefined });
  const ended = interrupted(step, directives);
  if (ended !== undefined) return ended;
  const { checkpoint, outcome, reopened, syncsPrompt } = before.state;
  const completes = checkpoint === "before_completion";
  const goesOn = directives.messages.length > 0 || inputs.length > 0;
  if (completes && !goesOn) return finish(step, outcome as TurnOutcome);
  if (isAtLimit(step.state)) return turnLimit(step);
  // The host's inputs are finitely many; a plugin that is never content would go on for ever.
  const byPlugin = completes && inputs.length === 0;
  if (byPlugin && reopened >= MAX_REOPENED) {
    const message = `Plugins took the answer back ${MAX_REOPENED} times.`;
    return stop(step, "max_turns", { kind: "plugin", code: "completion_reopened", message });
  }
  const open = change(step, { outcome: undefined, reopened: reopened + (byPlugin ? 1 : 0) });
  return syncsPrompt ? ask(open, { phase: "prompt" }) : nextModelCall(open);
}

const DECIDED: readonly TurnPhase[] = ["after_turn", "capture", "commit", "deliver", "done", "failed"];

/** Nothing can stop the turn any more: how it ends is decided. */
export function isDecided({ phase }: Pick<TurnState, "phase">): boolean {
  return DECIDED.includes(phase);
}

function onCancel(step: TurnStep, { type: _, ...cancel }: Extract<TurnEvent, { type: "cancel" }>): TurnStep {
  return isDecided(step.state) || step.state.cancel !== undefined ? step : change(step, { cancel });
}

// What a turn makes of work: the tools and the code the model asked for, and what they came to.

export function startWork(step: TurnStep, work: NonNullable<TurnState["work"]>): TurnStep {
  return ask(step, { phase: work.type, work });
}

export function onTools(before: TurnStep, event: Extract<TurnEvent, { type: "tools_done" }>): TurnStep {
  const { records, directives, issue } = event;
  const parts: Part[] = records.map(resultPart);
  // Every call has its result before anything else happens, so the history stays acceptable to every provider.
  const worked = withCalls(before, records);
  const step = applyDirectives(parts.length === 0 ? worked : append(worked, "tool", parts), directives);
  const ended = interrupted(step, directives);
  if (ended !== undefined) return ended;
  if (issue !== undefined) return stop(step, "runtime_error", issue);
  const fruitful = records.some(({ output }) => output.status === "success");
  return endByTool(step, records) ?? afterWork(step, fruitful);
}

/** A result as the history keeps it: as the projector left it, or as the tool gave it. */
function resultPart({ callId, toolName, output, modelText, modelContent }: ToolRecord): Part {
  const type = "tool_result";
  const { status } = output;
  if (modelText !== undefined) return { type, callId, toolName, status, text: modelText };
  const content = modelContent ?? (output.status === "success" ? output.content : undefined);
  if (content !== undefined)
    return { type, callId, toolName, status, text: wordsOfContent(content), content: storedContent(content) };
  const isJson = output.status === "success" && typeof output.value !== "string";
  return { type, callId, toolName, status, text: renderToolOutput(output), ...(isJson && { json: true }) };
}

/** What the code printed is the model's next reading, unless the code itself gave the answer. */
export function onCode(before: TurnStep, event: Extract<TurnEvent, { type: "code_done" }>): TurnStep {
  const { result, directives, issue } = event;
  const printed: Part = { type: "text", text: renderCodeResult(result) };
  const ran = withCalls(before, result.toolCalls);
  const step = applyDirectives(append(ran, "user", [printed], { origin: { kind: "protocol" } }), directives);
  const interruption = interrupted(step, directives);
  if (interruption !== undefined) return interruption;
  if (issue !== undefined) return stop(step, "runtime_error", issue);
  // A tool that ends the turn does so wherever it was called.
  const ended = endByTool(step, result.toolCalls);
  if (ended !== undefined) return ended;
  if (result.terminalFinish === undefined) return afterWork(step, result.error === undefined);
  const { value, failed = false } = result.terminalFinish;
  if (!failed) return complete(step, { kind: "finish", text: wordsOf(value), value });
  const submitted = { kind: "runtime", code: "submitted_error", message: wordsOf(value) } as const;
  return stop(step, "submitted_error", submitted, { value });
}

function withCalls(step: TurnStep, records: readonly ToolRecord[]): TurnStep {
  return change(step, { work: undefined, toolCalls: [...step.state.toolCalls, ...records] });
}

/** The answer is there: the last checkpoint decides whether it stands. */
export function complete(step: TurnStep, { text, value }: Extract<ProtocolStep, { kind: "finish" }>): TurnStep {
  const outcome = { type: "finished", text, ...(value !== undefined && { value }) } as const;
  return ask(step, { phase: "checkpoint", checkpoint: "before_completion", outcome });
}

/** The end of a turn that one of these calls ended: nothing is asked any more, not even a checkpoint. */
function endByTool(step: TurnStep, records: readonly ToolRecord[]): TurnStep | undefined {
  const end = turnEndOf(records);
  if (end === undefined) return undefined;
  const { toolName, control } = end;
  switch (control.kind) {
    case "finish": {
      const { value, text = wordsOf(value) } = control;
      return finish(step, { type: "finished", text, value, toolName });
    }
    case "fail": {
      const { code, message, value } = control;
      const said = { toolName, ...(value !== undefined && { value }) };
      return stop(step, "tool_error", { kind: "tool", code, message }, said);
    }
    case "switch_agent_frame":
      return leaveFrame(step, control);
  }
}

/** `fruitful`: something of it went well. */
function afterWork(before: TurnStep, fruitful: boolean): TurnStep {
  const fruitless = fruitful ? 0 : before.state.fruitless + 1;
  const step = change(before, { fruitless });
  if (isAtLimit(step.state)) return turnLimit(step);
  const limit = step.state.config.noProgressLimit ?? null;
  if (limit === null || fruitless < limit) return ask(step, { phase: "checkpoint", checkpoint: "after_work" });
  const message = `Nothing the model tried in ${limit} steps worked.`;
  return stop(step, "max_turns", { kind: "runtime", code: "no_progress", message });
}
