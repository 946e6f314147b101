import type { TurnDirectives } from "../directives/index.js";
import type { AppendNode, Message, Part } from "../history/index.js";
import type { CodeResult, ModelCallRecord, ModelOptions, ModelResponse, ProtocolStep } from "../model/index.js";
import type { ToolCall, ToolRecord } from "../tools/index.js";
import type { Ledger, Usage } from "../usage/index.js";
import type { StopReason, TurnIssue, TurnOutcome, TurnSummary, UntimedActivity } from "./activity.js";
import type { CheckpointKind, PendingInput } from "./turn-input.js";

/**
 * The turn as a pure machine: `stepTurn(state, event)` gives the next state and the effects it asks for. Exactly one
 * effect is outstanding at a time, apart from `emit`, which needs no answer. The session worker performs the effects
 * and feeds the answers back; replay and simulation can do the same with recorded ones.
 *
 *   before_turn → prompt → model ⇄ tools → checkpoint → … → after_turn → capture → commit → deliver → done
 */
export interface TurnConfig {
  readonly sessionId: string;
  readonly turnId: string;
  readonly turnIndex: number;
  /** What the turn begins with; nothing when its input is of no use. */
  readonly input: readonly Part[];
  /** What ends the turn before it begins: it is recorded, and that is all. */
  readonly stopped?: { readonly reason: StopReason; readonly issue: TurnIssue };
  /** Model calls one turn may make; null for as many as it takes. */
  readonly maxSteps: number | null;
  /** Steps in a row that came to nothing; null for as many as it takes. */
  readonly noProgressLimit?: number | null;
  /** The protocol wants to be asked before every model call. */
  readonly asksBeforeModel?: boolean;
  /** How much the model can read, when somebody said. */
  readonly maxContextTokens?: number | null;
  /** When it begins: what its first message is stamped with. */
  readonly at?: number;
}

export type TurnPhase =
  | "before_turn"
  | "prompt"
  | "before_model"
  | "model"
  | "tools"
  | "code"
  | "checkpoint"
  | "after_turn"
  | "capture"
  | "commit"
  | "deliver"
  | "done"
  | "failed";

export interface TurnState {
  readonly phase: TurnPhase;
  readonly config: TurnConfig;
  /** Index of the current or next model call. */
  readonly step: number;
  /** What this turn adds to the history; the history itself is never copied into the machine. */
  readonly messages: readonly Message[];
  readonly usage: Usage;
  /** The same, by model. */
  readonly spent: Ledger;
  readonly modelCallRecords: readonly ModelCallRecord[];
  readonly toolCalls: readonly ToolRecord[];
  readonly issues: readonly TurnIssue[];
  readonly outcome: TurnOutcome | undefined;
  /** Of the frame it leaves for, when that is its outcome. */
  readonly initialNodes: readonly AppendNode[];
  /** The session's, with this turn in it; 0 until it is stored. */
  readonly revision: number;
  readonly checkpoint: CheckpointKind | undefined;
  /** Steps in a row whose every call failed. */
  readonly fruitless: number;
  /** How often plugins took an answer back to work on. */
  readonly reopened: number;
  /** What the model asked for and nobody has answered yet. */
  readonly work: Extract<TurnEffect, { type: "tools" | "code" }> | undefined;
  /** What plugins said of the next model call alone. */
  readonly nextCall: ModelOptions | undefined;
  /** The model was told once that its answer does not have the form that was asked for. */
  readonly repaired: boolean;
  /** The prompt is made anew for every model call. */
  readonly syncsPrompt: boolean;
  /** A cancellation that has not been acted on yet. */
  readonly cancel: Cancellation | undefined;
  /** What may be told to the host only once the turn is stored. */
  readonly deferred: readonly TurnEffect[];
  /** When the last answer came: what is said because of it is stamped with this. */
  readonly at: number | undefined;
}

export type TurnEffect =
  | { readonly type: "emit"; readonly activity: UntimedActivity }
  | { readonly type: "before_turn" }
  | { readonly type: "prompt" }
  | { readonly type: "before_model"; readonly step: number }
  | { readonly type: "model"; readonly step: number; readonly options?: ModelOptions }
  | { readonly type: "code"; readonly language: string; readonly code: string }
  | {
      readonly type: "tools";
      readonly calls: readonly ToolCall[];
      readonly brokenArgs: Readonly<Record<string, string>>;
    }
  | { readonly type: "checkpoint"; readonly checkpoint: CheckpointKind }
  | { readonly type: "after_turn"; readonly summary: TurnSummary }
  /** Plugins and the code executor say what state they are left in, so that what goes wrong there is stored too. */
  | { readonly type: "capture" }
  | ({ readonly type: "commit" } & StorableTurn)
  | { readonly type: "deliver"; readonly summary: TurnSummary; readonly revision: number };

/** All of a turn that its commit stores. */
export interface StorableTurn extends Pick<TurnState, "messages" | "spent" | "modelCallRecords" | "initialNodes"> {
  readonly summary: TurnSummary;
}

export type TurnEvent =
  /** `issues`: what went wrong meanwhile without ending the turn. */
  | (TurnAnswer & { readonly issues?: readonly TurnIssue[] })
  /** The host or the runtime wants the turn to stop; acted on when the outstanding effect is answered. */
  | ({ readonly type: "cancel" } & Cancellation);

/** Why a turn is to stop, and what is kept of an answer it stops in. The first one counts. */
export interface Cancellation {
  readonly reason: string;
  /** Its time is up: it ends with `turn_deadline`. */
  readonly deadline?: true;
  /** The text of the answer that was shown by then is kept, as a message marked `interrupted`. */
  readonly keepPartial?: true;
}

type TurnAnswer =
  | { readonly type: "before_turn_done"; readonly directives: TurnDirectives }
  | { readonly type: "prompt_done"; readonly syncs?: boolean }
  | { readonly type: "prompt_failed"; readonly issue: TurnIssue }
  | { readonly type: "before_model_done" }
  | { readonly type: "before_model_failed"; readonly issue: TurnIssue }
  | {
      readonly type: "frame_switch";
      readonly frameId: string;
      readonly task: string;
      readonly initialNodes?: readonly AppendNode[];
    }
  /**
   * `next`: what the protocol makes of the answer; without one it is native tool calling. `issue`: it made nothing of it.
   * `misfit`: it is the end, and does not have the form that was asked for.
   */
  | {
      readonly type: "model_done";
      readonly response: ModelResponse;
      readonly next?: ProtocolStep;
      readonly issue?: TurnIssue;
      readonly misfit?: string;
      readonly record?: ModelCallRecord;
    }
  /** `usage`: the model did answer, and something spoiled the answer afterwards. */
  | {
      readonly type: "model_failed";
      readonly issue: TurnIssue;
      readonly usage?: Usage;
      readonly record?: ModelCallRecord;
      /** The text that was shown of an answer the turn was cancelled in, as response hooks leave it. */
      readonly shown?: readonly Part[];
    }
  /** There is nothing left to pay another call with. */
  | { readonly type: "budget_spent"; readonly issue: TurnIssue }
  /** `issue`, here and below: the turn cannot go on from it. */
  | {
      readonly type: "code_done";
      readonly result: CodeResult;
      readonly directives: TurnDirectives;
      readonly issue?: TurnIssue;
    }
  | {
      readonly type: "tools_done";
      readonly records: readonly ToolRecord[];
      readonly directives: TurnDirectives;
      readonly issue?: TurnIssue;
    }
  /** `inputs`: what waited for this checkpoint. */
  | {
      readonly type: "checkpoint_done";
      readonly directives: TurnDirectives;
      readonly inputs?: readonly CheckpointInput[];
    }
  | { readonly type: "checkpoint_failed"; readonly issue: TurnIssue }
  | { readonly type: "after_turn_done"; readonly directives: TurnDirectives }
  | { readonly type: "captured" }
  | { readonly type: "committed"; readonly revision: number }
  | { readonly type: "delivered" }
  /** before_turn, after_turn, the capture or the commit failed: the call rejects and nothing is stored. */
  | { readonly type: "refused" };

/** Something that waited for a checkpoint, as the turn takes it up. */
export type CheckpointInput = Pick<PendingInput, "id" | "text" | "parts">;

export interface TurnStep {
  readonly state: TurnState;
  readonly effects: readonly TurnEffect[];
}
