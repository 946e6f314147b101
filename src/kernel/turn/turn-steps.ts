import type { TroupeErrorCode } from "../codes/index.js";
/** The steps a turn is made of: what it asks for, what is said in it, how it ends. Decided in `turn.ts`. */

import { NO_DIRECTIVES, type TurnDirectives } from "../directives/index.js";
import type { Message, Origin, Part, Role } from "../history/index.js";
import { wellFormed } from "../json.js";
import type { FinishReason, ModelResponse } from "../model/index.js";
import type { StopReason, TurnIssue, TurnOutcome, TurnResult, TurnSummary, UntimedActivity } from "./activity.js";
import { type CheckpointKind, partsOfInput, withText } from "./turn-input.js";
import type { CheckpointInput, TurnEffect, TurnEvent, TurnState, TurnStep } from "./turn-state.js";

// What a turn asks for follows from its state alone.

/** What a state waits for. A turn that goes on from a stored state asks for exactly this again, and once. */
export function outstanding(state: TurnState): Exclude<TurnEffect, { type: "emit" }> | undefined {
  switch (state.phase) {
    case "before_turn":
    case "prompt":
    case "capture":
      return { type: state.phase };
    case "before_model":
      return { type: "before_model", step: state.step };
    case "model":
      return { type: "model", step: state.step, ...(state.nextCall && { options: state.nextCall }) };
    case "tools":
    case "code":
      return state.work;
    case "checkpoint":
      // The phase is never entered without saying which.
      return { type: "checkpoint", checkpoint: state.checkpoint as CheckpointKind };
    case "after_turn":
      return { type: "after_turn", summary: summarise(state) };
    case "commit": {
      const { messages, spent, modelCallRecords, initialNodes } = state;
      return { type: "commit", summary: summarise(state), messages, spent, modelCallRecords, initialNodes };
    }
    case "deliver":
      return { type: "deliver", summary: summarise(state), revision: state.revision };
    case "done":
    case "failed":
      return undefined;
  }
}

/** Goes on with a changed state. */
export function change({ state, effects }: TurnStep, changed: Partial<TurnState>): TurnStep {
  return { state: Object.assign(copyOf(state), changed), effects };
}

/** Field by field: V8 copies an object of this size twenty times as fast as by spreading, and a turn has twenty changes. */
function copyOf(state: TurnState): TurnState {
  return {
    phase: state.phase,
    config: state.config,
    step: state.step,
    messages: state.messages,
    usage: state.usage,
    spent: state.spent,
    modelCallRecords: state.modelCallRecords,
    toolCalls: state.toolCalls,
    issues: state.issues,
    outcome: state.outcome,
    initialNodes: state.initialNodes,
    revision: state.revision,
    checkpoint: state.checkpoint,
    fruitless: state.fruitless,
    reopened: state.reopened,
    work: state.work,
    nextCall: state.nextCall,
    repaired: state.repaired,
    syncsPrompt: state.syncsPrompt,
    cancel: state.cancel,
    deferred: state.deferred,
    at: state.at,
  };
}

/** The same, and asks for what the state then waits for. */
export function ask(step: TurnStep, changed: Partial<TurnState>): TurnStep {
  const { state, effects } = change(step, changed);
  const effect = outstanding(state);
  return { state, effects: effect === undefined ? effects : [...effects, effect] };
}

/** Tells whoever listens; nobody answers it. */
export function tell({ state, effects }: TurnStep, activity: UntimedActivity): TurnStep {
  return { state, effects: [...effects, { type: "emit", activity }] };
}

function tellAll({ state, effects }: TurnStep, activities: readonly UntimedActivity[]): TurnStep {
  return { state, effects: effects.concat(activities.map((activity) => ({ type: "emit", activity }))) };
}

export function summarise(state: TurnState): TurnSummary {
  const outcome: TurnOutcome = state.outcome ?? {
    type: "stopped",
    reason: "runtime_error",
    code: "no_outcome",
    message: "The turn has no outcome.",
  };
  return {
    turnId: state.config.turnId,
    turnIndex: state.config.turnIndex,
    outcome,
    text: outcome.type === "finished" ? outcome.text : "",
    usage: state.usage,
    modelCalls: state.step,
    toolCalls: state.toolCalls,
    issues: state.issues,
  };
}

/** What a turn that is stored came to. Field by field: to a copy by spreading, V8 adds each field for the price of a hundred. */
export function resultOf(state: TurnState): TurnResult {
  const { turnId, turnIndex, outcome, text, usage, modelCalls, toolCalls, issues } = summarise(state);
  const { config, revision, modelCallRecords } = state;
  const { sessionId } = config;
  return {
    turnId,
    turnIndex,
    outcome,
    text,
    usage,
    modelCalls,
    toolCalls,
    issues,
    sessionId,
    revision,
    modelCallRecords,
  };
}

// What is said in a turn: every message it adds to the history passes `append`.

export function append(
  step: TurnStep,
  role: Role,
  parts: readonly Part[],
  from: Pick<Message, "origin" | "route" | "interrupted"> = {},
): TurnStep {
  const { messages } = step.state;
  return change(step, { messages: [...messages, messageIn(step.state, messages.length, { role, parts }, from)] });
}

/** Many at once: the list is copied once, however many there are. */
function appendAll(step: TurnStep, said: readonly Omit<Message, "id">[]): TurnStep {
  const { messages } = step.state;
  const added = said.map((message, nth) => messageIn(step.state, messages.length + nth, message, message));
  return change(step, { messages: messages.concat(added) });
}

/**
 * The turn's message with this number. The usual ones as literals: a field that is added to an object stands in a list
 * beside it, and a session in memory has many messages.
 */
function messageIn(
  { config: { turnId }, at }: TurnState,
  nth: number,
  { role, parts }: Pick<Message, "role" | "parts">,
  { origin, route, interrupted }: Pick<Message, "origin" | "route" | "interrupted">,
): Message {
  const id = `${turnId}.${nth}`;
  const isUsual = at !== undefined && interrupted === undefined;
  if (isUsual && origin !== undefined && route === undefined) return wellFormed({ id, role, parts, origin, at });
  if (isUsual && origin === undefined && route !== undefined) return wellFormed({ id, role, parts, route, at });
  return wellFormed({
    id,
    role,
    parts,
    ...(origin !== undefined && { origin }),
    ...(route !== undefined && { route }),
    ...(interrupted !== undefined && { interrupted }),
    ...(at !== undefined && { at }),
  });
}

/** What the host put into the running turn: plain user messages, before what plugins say to it. */
export function acceptInputs(before: TurnStep, inputs: readonly CheckpointInput[]): TurnStep {
  if (inputs.length === 0) return before;
  const { turnId } = before.state.config;
  const said = appendAll(
    before,
    inputs.map((input) => {
      const origin: Origin = { kind: "turn_input", turnId, inputId: input.id };
      return { role: "user", parts: partsOfInput(input), origin };
    }),
  );
  return tell(said, { type: "inputs_accepted", inputIds: inputs.map(({ id }) => id) });
}

export function applyDirectives(given: TurnStep, { messages, events, nextCall, input }: TurnDirectives): TurnStep {
  const asked = input === undefined ? given : withInput(given, input);
  const before = nextCall === undefined ? asked : change(asked, { nextCall });
  const told =
    events.length === 0
      ? before
      : tellAll(
          before,
          events.map(({ pluginId, value }) => ({ type: "plugin_event", pluginId, event: value })),
        );
  if (messages.length === 0) return told;
  const said = appendAll(
    told,
    messages.map(({ pluginId, value: { role, text } }) => {
      return { role, parts: [{ type: "text", text }], origin: { kind: "plugin", pluginId } };
    }),
  );
  return tell(said, { type: "messages_injected", pluginIds: messages.map(({ pluginId }) => pluginId) });
}

/** The turn's first message with another text. */
function withInput(step: TurnStep, text: string): TurnStep {
  const [asked, ...rest] = step.state.messages;
  if (asked === undefined) return step;
  return change(step, { messages: [wellFormed({ ...asked, parts: withText(asked.parts, text) }), ...rest] });
}

// How turns end: each of these leads to `after_turn`, and from there to the commit.

/**
 * The end of a turn that was cancelled or that a plugin aborts here; undefined when it goes on. The cancellation first:
 * whoever asked for it was told that it counts.
 */
export function interrupted(step: TurnStep, { abort }: TurnDirectives = NO_DIRECTIVES): TurnStep | undefined {
  const { cancel } = step.state;
  if (cancel !== undefined) {
    const { reason: message, deadline } = cancel;
    if (deadline) return stop(step, "deadline", { kind: "runtime", code: "turn_deadline", message });
    return finish(step, { type: "stopped", reason: "cancelled", code: "cancelled", message });
  }
  if (abort === undefined) return undefined;
  const { code, message } = abort.value;
  return stop(step, "plugin_abort", { kind: "plugin", pluginId: abort.pluginId, code, message });
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

/** How a turn ends for what its model, or its provider, did. */
export interface ModelEnd {
  readonly reason: StopReason;
  readonly issue: TurnIssue;
}

export const modelIssue = (code: TroupeErrorCode, message: string): TurnIssue => ({ kind: "model", code, message });

/** Finish reasons after which there is nothing to go on with. */
const ENDS_THE_TURN: { readonly [R in FinishReason]?: ModelEnd } = {
  length: { reason: "incomplete", issue: modelIssue("output_limit", "The model reached its output limit.") },
  content_filter: {
    reason: "provider_error",
    issue: modelIssue("content_filter", "The provider filtered the answer."),
  },
  error: { reason: "provider_error", issue: modelIssue("provider_error", "The provider reported an error.") },
};

const CONTEXT_OVERFLOW: ModelEnd = {
  reason: "provider_error",
  issue: modelIssue("context_overflow", "The conversation fills all the model can read: there was no room to answer."),
};

/** Providers count a little differently than they limit: from here on a context is full. */
const FULL = 0.95;

/**
 * Does this answer end the turn, and how? An answer of nothing that ran into its limit under a full context did not run
 * too long: it had nowhere to go, and asking for more of it would not help.
 */
export function endOf(
  { reason, usage }: Pick<ModelResponse, "reason" | "usage">,
  maxContextTokens: number | null | undefined,
): ModelEnd | undefined {
  const full = typeof maxContextTokens === "number" && usage.inputTokens >= FULL * maxContextTokens;
  if (reason === "length" && usage.outputTokens === 0 && full) return CONTEXT_OVERFLOW;
  return ENDS_THE_TURN[reason];
}
