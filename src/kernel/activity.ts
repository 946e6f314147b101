import type { PluginEvent } from "./directives.js";
import type { Json } from "./json.js";
import type { FinishReason } from "./model.js";
import type { TurnIssue, TurnResult } from "./outcome.js";
import type { ToolOutput } from "./tools.js";
import type { Usage } from "./usage.js";

/**
 * What a host sees while a turn runs. Deltas of one block share a `blockId`; a tool's start and finish share its
 * `callId`. Deltas may be merged on the way to a slow reader, never lost and never reordered. Only `turn_finished`
 * proves that the turn is stored.
 */
export type Activity =
  | { readonly type: "turn_started"; readonly turnId: string; readonly turnIndex: number }
  | { readonly type: "model_call_started"; readonly step: number }
  | { readonly type: "text_delta"; readonly blockId: string; readonly text: string }
  | { readonly type: "reasoning_delta"; readonly blockId: string; readonly text: string }
  | {
      readonly type: "model_retry";
      readonly step: number;
      readonly attempt: number;
      readonly code: string;
      readonly delayMs: number;
    }
  | {
      readonly type: "model_call_finished";
      readonly step: number;
      readonly reason: FinishReason;
      readonly usage: Usage;
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
  /** Tokens spent beside the turn's own model calls: a direct completion, a child session. */
  | { readonly type: "usage"; readonly source: string; readonly usage: Usage }
  | { readonly type: "issue"; readonly issue: TurnIssue }
  /** Somebody began to listen so late that this many activities were no longer kept. */
  | { readonly type: "gap"; readonly missed: number }
  | { readonly type: "turn_finished"; readonly result: TurnResult };
