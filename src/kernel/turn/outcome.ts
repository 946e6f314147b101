import type { Json } from "../json.js";
import type { ModelCallRecord } from "../model/index.js";
import type { ToolRecord } from "../tools/index.js";
import type { Usage } from "../usage/index.js";

export type StopReason =
  /** The session's budget is spent. */
  | "budget"
  | "cancelled"
  | "incomplete"
  | "invalid_input"
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
      readonly code: string;
      readonly message: string;
      readonly toolName?: string;
      readonly value?: Json;
    };

/** Something that went wrong on the way without deciding the outcome alone. */
export interface TurnIssue {
  readonly kind: "input" | "model" | "plugin" | "runtime" | "tool";
  readonly code: string;
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
