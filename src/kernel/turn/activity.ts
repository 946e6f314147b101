import type { AnyErrorCode } from "../codes/index.js";
import type { PluginEvent } from "../directives/index.js";
import type { AnswerPart } from "../history/index.js";
import type { Json } from "../json.js";
import type { FinishReason, ModelCallRecord } from "../model/index.js";
import type { CompactionReason } from "../prompt/index.js";
import type { Announcement, ToolOutput, ToolRecord } from "../tools/index.js";
import type { Usage } from "../usage/index.js";

export type StopReason =
  /** The session's budget is spent. */
  | "budget"
  | "cancelled"
  /** It took longer than its `deadlineMs`. */
  | "deadline"
  | "incomplete"
  | "invalid_input"
  /** The answer does not have the form that was asked for. */
  | "invalid_output"
  | "max_turns"
  | "provider_error"
  | "plugin_abort"
  | "runtime_error"
  /** The code the model wrote ended the turn as a failure. */
  | "submitted_error"
  /** A tool ended the turn as a failure, or the turn could not go on without its answer. */
  | "tool_error";

export type TurnOutcome =
  /** `value`: what the turn was to find out, when its protocol or a tool ends with a value. `toolName`: the tool that did. */
  | { readonly type: "finished"; readonly text: string; readonly value?: Json; readonly toolName?: string }
  /** The protocol left for another frame instead of calling the model, or a tool did. */
  | { readonly type: "frame_switch"; readonly frameId: string; readonly task: string }
  /** `toolName` and `value`: of a `tool_error` or `submitted_error`, which tool it was and what was said besides. */
  | {
      readonly type: "stopped";
      readonly reason: StopReason;
      readonly code: AnyErrorCode;
      readonly message: string;
      readonly toolName?: string;
      readonly value?: Json;
    };

/** Something that went wrong on the way without deciding the outcome alone. */
export interface TurnIssue {
  readonly kind: "input" | "model" | "plugin" | "runtime" | "tool";
  readonly code: AnyErrorCode;
  readonly message: string;
  readonly pluginId?: string;
}

/** What a turn came to, before it is stored: what `afterTurn` hooks see. */
export interface TurnSummary {
  readonly turnId: string;
  readonly turnIndex: number;
  readonly outcome: TurnOutcome;
  /** The final answer; empty unless the outcome is `finished`. */
  readonly text: string;
  readonly usage: Usage;
  /** Model calls that were answered, and so paid for. */
  readonly modelCalls: number;
  readonly toolCalls: readonly ToolRecord[];
  readonly issues: readonly TurnIssue[];
}

/** What `await session.turn(…)` gives. It exists only after the commit is durable. */
export interface TurnResult extends TurnSummary {
  readonly sessionId: string;
  /** The session's head revision with this turn in it. */
  readonly revision: number;
  /** The turns before it, when this one goes on with a task they left for a new frame; oldest first. */
  readonly before?: readonly TurnResult[];
  /** Every model call of the turn with every attempt, also those that gave no answer. Hooks are not sent them. */
  readonly modelCallRecords: readonly ModelCallRecord[];
}

/**
 * Of the shapes below, told with every `turn_started`. A consumer that meets another one should not go on as if it
 * understood: it grows when a variant loses or changes something, not when one is added.
 */
export const ACTIVITY_VERSION = 1;

/**
 * What a host sees while a turn runs: a closed union of plain JSON, in which what is absent is left out and never null.
 *
 * What belongs together shares an id: a tool call's start, retries, announcement and end its `callId`; a model call's
 * start, retries and end its `modelCallId`; the deltas of one block of an answer its `blockId`. Every model call that
 * starts ends with exactly one `model_call_finished` or `model_call_failed`, and the calls of a turn follow one another,
 * so deltas belong to the call that is open, and a `blockId` means something only within it.
 *
 * Deltas may be merged on the way to a slow reader, never lost and never reordered. Nothing that was shown is taken back:
 * an attempt of which anything came is never repeated, so a `model_retry` has no deltas before it and there is no
 * activity to retract some. Only `turn_finished` proves that the turn is stored.
 */
export type Activity = UntimedActivity & {
  /** When it happened, in milliseconds since 1970 by the clock of the session's worker. Of joined deltas, the first. */
  readonly at: number;
};

/** What happened in a turn, before it is told. */
export type UntimedActivity =
  | {
      readonly type: "turn_started";
      readonly version: typeof ACTIVITY_VERSION;
      readonly turnId: string;
      readonly turnIndex: number;
    }
  | { readonly type: "model_call_started"; readonly modelCallId: string; readonly step: number }
  | { readonly type: "text_delta"; readonly blockId: string; readonly text: string }
  | { readonly type: "reasoning_delta"; readonly blockId: string; readonly text: string }
  /** Something of the answer that is no text: a source, a file, what the provider did itself. Files are told by their hash. */
  | { readonly type: "answer_part"; readonly part: AnswerPart }
  /** An attempt failed before anything of its answer came, and is repeated. */
  | {
      readonly type: "model_retry";
      readonly modelCallId: string;
      readonly step: number;
      readonly attempt: number;
      readonly code: AnyErrorCode;
      readonly delayMs: number;
    }
  /** A model gave no answer and has no attempts left; the next of the `fallbackModels` is asked. `from` and `to` are models' ids. */
  | {
      readonly type: "model_fallback";
      readonly modelCallId: string;
      readonly step: number;
      readonly from: string;
      readonly to: string;
      readonly code: string;
    }
  | {
      readonly type: "model_call_finished";
      readonly modelCallId: string;
      readonly step: number;
      readonly reason: FinishReason;
      readonly usage: Usage;
      readonly record?: ModelCallRecord;
    }
  /** The model gave no answer, or one that nobody can use: then it cost something all the same. */
  | {
      readonly type: "model_call_failed";
      readonly modelCallId: string;
      readonly step: number;
      readonly code: AnyErrorCode;
      readonly usage?: Usage;
      /** Absent when it did not come to an attempt. */
      readonly record?: ModelCallRecord;
    }
  /**
   * More of the arguments of a call that the model is writing; its whole is in `tool_call_started`, which does not come
   * when the answer breaks off. Only whoever looks by then is told.
   */
  | { readonly type: "tool_input_delta"; readonly callId: string; readonly toolName: string; readonly text: string }
  /** How far a call is, as its tool says. Only whoever looks by then is told. `missed`: what was left out before it, when it was more than nothing. */
  | {
      readonly type: "tool_progress";
      readonly callId: string;
      readonly toolName: string;
      readonly value: Json;
      readonly missed?: number;
    }
  /** What the result of a call is so far. Only whoever looks by then is told. */
  | {
      readonly type: "tool_preliminary";
      readonly callId: string;
      readonly toolName: string;
      readonly output: Json;
      readonly missed?: number;
    }
  | { readonly type: "tool_call_started"; readonly callId: string; readonly toolName: string; readonly args: Json }
  | {
      readonly type: "tool_call_finished";
      readonly callId: string;
      readonly toolName: string;
      readonly output: ToolOutput;
      readonly durationMs: number;
    }
  /** A failed call is made again. */
  | {
      readonly type: "tool_call_retry";
      readonly callId: string;
      readonly toolName: string;
      readonly attempt: number;
      readonly code: AnyErrorCode;
      readonly delayMs: number;
    }
  /** The answer of a call comes from outside, under this key. */
  | {
      readonly type: "tool_call_pending";
      readonly callId: string;
      readonly toolName: string;
      readonly key: string;
      readonly announcement: Announcement;
      /** As the tool has them, or would with a yes. */
      readonly args: Json;
      /** A yes may come with other arguments. */
      readonly allowEdit?: true;
      /** When the waiting ends by itself, in milliseconds since 1970. */
      readonly deadline?: number;
    }
  /** Somebody said yes to a call: it runs, with these arguments. */
  | { readonly type: "tool_call_approved"; readonly callId: string; readonly toolName: string; readonly args: Json }
  /** Inputs that waited are in the turn now; each is told once. */
  | { readonly type: "inputs_accepted"; readonly inputIds: readonly string[] }
  | { readonly type: "messages_injected"; readonly pluginIds: readonly string[] }
  | { readonly type: "plugin_event"; readonly pluginId: string; readonly event: PluginEvent }
  /**
   * The conversation before the turn was summed up, because it had reached its share of the context or the provider refused
   * it as too long: so many messages are in its place now. `pluginId`: who summed it up.
   */
  | {
      readonly type: "context_compacted";
      readonly reason: CompactionReason;
      readonly frameId: string;
      readonly messagesBefore: number;
      readonly messages: number;
      readonly pluginId: string;
    }
  /** The session's budget is spent, and the turn waits until it is raised. */
  | { readonly type: "turn_paused"; readonly code: AnyErrorCode; readonly message: string }
  | { readonly type: "turn_resumed" }
  /** Tokens spent beside the turn's own model calls: a direct completion, a child session. */
  | { readonly type: "usage"; readonly source: string; readonly model: string; readonly usage: Usage }
  | { readonly type: "issue"; readonly issue: TurnIssue }
  /** Somebody began to listen so late that this many activities were no longer kept. */
  | { readonly type: "gap"; readonly missed: number }
  | { readonly type: "turn_finished"; readonly result: TurnResult };

const TYPES: Readonly<Record<Activity["type"], true>> = {
  turn_started: true,
  model_call_started: true,
  text_delta: true,
  reasoning_delta: true,
  answer_part: true,
  model_retry: true,
  model_fallback: true,
  model_call_finished: true,
  model_call_failed: true,
  tool_input_delta: true,
  tool_call_started: true,
  tool_progress: true,
  tool_preliminary: true,
  tool_call_finished: true,
  tool_call_retry: true,
  tool_call_pending: true,
  tool_call_approved: true,
  inputs_accepted: true,
  messages_injected: true,
  plugin_event: true,
  context_compacted: true,
  turn_paused: true,
  turn_resumed: true,
  usage: true,
  issue: true,
  gap: true,
  turn_finished: true,
};

/** Every type an activity of this version can have. */
export const ACTIVITY_TYPES = Object.keys(TYPES) as readonly Activity["type"][];

/** Two neighbouring deltas of one block are one longer delta. Of what a call says of itself the later one stands. */
export function joinDeltas(first: Activity, second: Activity): Activity | undefined {
  if (first.type === "tool_progress" || first.type === "tool_preliminary")
    return second.type === first.type && second.callId === first.callId
      ? { ...second, missed: (first.missed ?? 0) + 1 + (second.missed ?? 0) }
      : undefined;
  if (first.type === "tool_input_delta")
    return second.type === first.type && second.callId === first.callId
      ? { ...first, text: first.text + second.text }
      : undefined;
  if (first.type !== "text_delta" && first.type !== "reasoning_delta") return undefined;
  if (second.type !== first.type || second.blockId !== first.blockId) return undefined;
  return { ...first, text: first.text + second.text };
}

export interface BufferRules<T> {
  /** Two neighbours as one entry; undefined: they stay two. */
  readonly join: (last: T, next: T) => T | undefined;
  /** The most entries that are kept. Default: any number. */
  readonly limit?: number;
  /** How many of the newest stay when there are more than `limit`. Default: `limit`. */
  readonly keep?: number;
  /** Made of how many entries were given up and the last of them, and read in their place. Default: nothing is. */
  readonly gap?: (missed: number, last: T) => T;
}

/** For a reader of a turn's activities: it is told how many it missed. */
export function activitiesUpTo(limit: number): BufferRules<Activity> {
  return { join: joinDeltas, limit, gap: (missed, { at }) => ({ type: "gap", missed, at }) };
}

/** Entries nobody has read yet. Writing never waits for a reader: neighbours join, and past a limit the oldest go. */
export class ActivityBuffer<T> {
  readonly #rules: BufferRules<T>;
  #entries: T[] = [];
  #missed = 0;
  #lastMissed: T | undefined;

  constructor(rules: BufferRules<T>) {
    this.#rules = rules;
  }

  get entries(): readonly T[] {
    return this.#entries;
  }

  push(next: T): void {
    const entries = this.#entries;
    const { join, limit = Number.POSITIVE_INFINITY, keep = limit } = this.#rules;
    const last = entries[entries.length - 1];
    const joined = last === undefined ? undefined : join(last, next);
    if (joined === undefined) entries.push(next);
    else entries[entries.length - 1] = joined;
    if (entries.length <= limit) return;
    for (; entries.length > keep; this.#missed++) this.#lastMissed = entries.shift();
  }

  /** Takes the oldest entry, or the gap before it. */
  shift(): T | undefined {
    return this.#takeGap() ?? this.#entries.shift();
  }

  /** Takes everything, the gap first. */
  takeAll(): T[] {
    const gap = this.#takeGap();
    const taken = this.#entries;
    this.#entries = [];
    return gap === undefined ? taken : [gap, ...taken];
  }

  #takeGap(): T | undefined {
    const { gap } = this.#rules;
    const last = this.#lastMissed;
    if (gap === undefined || last === undefined) return undefined;
    const missed = this.#missed;
    this.#missed = 0;
    this.#lastMissed = undefined;
    return gap(missed, last);
  }
}
