import type { PluginEvent } from "../directives/index.js";
import type { Json } from "../json.js";
import type { FinishReason, ModelCallRecord } from "../model/index.js";
import type { ToolOutput } from "../tools/index.js";
import type { Usage } from "../usage/index.js";
import type { TurnIssue, TurnResult } from "./outcome.js";

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
export type Activity =
  | {
      readonly type: "turn_started";
      readonly version: typeof ACTIVITY_VERSION;
      readonly turnId: string;
      readonly turnIndex: number;
    }
  | { readonly type: "model_call_started"; readonly modelCallId: string; readonly step: number }
  | { readonly type: "text_delta"; readonly blockId: string; readonly text: string }
  | { readonly type: "reasoning_delta"; readonly blockId: string; readonly text: string }
  /** An attempt failed before anything of its answer came, and is repeated. */
  | {
      readonly type: "model_retry";
      readonly modelCallId: string;
      readonly step: number;
      readonly attempt: number;
      readonly code: string;
      readonly delayMs: number;
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
      readonly code: string;
      readonly usage?: Usage;
      /** Absent when it did not come to an attempt. */
      readonly record?: ModelCallRecord;
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
      readonly code: string;
      readonly delayMs: number;
    }
  /** The answer of a call comes from outside, under this key. */
  | {
      readonly type: "tool_call_pending";
      readonly callId: string;
      readonly toolName: string;
      readonly key: string;
      readonly announcement: Json;
    }
  /** Inputs that waited are in the turn now; each is told once. */
  | { readonly type: "inputs_accepted"; readonly inputIds: readonly string[] }
  | { readonly type: "messages_injected"; readonly pluginIds: readonly string[] }
  | { readonly type: "plugin_event"; readonly pluginId: string; readonly event: PluginEvent }
  /** The session's budget is spent, and the turn waits until it is raised. */
  | { readonly type: "turn_paused"; readonly code: string; readonly message: string }
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
  model_retry: true,
  model_call_finished: true,
  model_call_failed: true,
  tool_call_started: true,
  tool_call_finished: true,
  tool_call_retry: true,
  tool_call_pending: true,
  inputs_accepted: true,
  messages_injected: true,
  plugin_event: true,
  turn_paused: true,
  turn_resumed: true,
  usage: true,
  issue: true,
  gap: true,
  turn_finished: true,
};

/** Every type an activity of this version can have. */
export const ACTIVITY_TYPES = Object.keys(TYPES) as readonly Activity["type"][];
