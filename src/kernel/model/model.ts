import type { Message, Part, ProviderMetadata } from "../history/index.js";
import type { JsonObject } from "../json.js";
import type { ToolSpec } from "../tools/index.js";
import type { Usage } from "../usage/index.js";

/** One model call. The conversation is `history` followed by `turn`; both are shared, never copied per call. */
export interface ModelRequest {
  readonly sessionId: string;
  readonly turnId: string;
  /** 0 for the first model call of the turn. */
  readonly step: number;
  readonly system: string;
  readonly history: readonly Message[];
  readonly turn: readonly Message[];
  readonly tools: readonly ToolSpec[];
  /** The bytes of stored attachments in these messages, by hash. */
  readonly attachments?: ReadonlyMap<string, Uint8Array>;
  /** Set when somebody asks the model outside the conversation. */
  readonly direct?: DirectCall;
}

/** A completion beside the turns: who asked for it, and what form the answer should have. */
export interface DirectCall {
  /** The label its usage is booked under. */
  readonly source: string;
  /** Default: text. */
  readonly output?: DirectOutput;
}

/** The form of a direct answer. Without a `schema`, any JSON will do. */
export type DirectOutput =
  | { readonly type: "text" }
  | { readonly type: "json"; readonly schema?: JsonObject; readonly name?: string };

export type FinishReason = "stop" | "tool_calls" | "length" | "content_filter" | "error" | "unknown";

/**
 * What a model answers. Deltas of one block share its `blockId`; a block that was not streamed is one whole `text`;
 * exactly one `finish` ends a successful answer.
 */
export type ModelEvent =
  | { readonly type: "text_delta"; readonly blockId: string; readonly text: string }
  | { readonly type: "text"; readonly blockId: string; readonly text: string }
  | { readonly type: "reasoning_delta"; readonly blockId: string; readonly text: string }
  | { readonly type: "reasoning_end"; readonly blockId: string; readonly metadata: ProviderMetadata }
  | {
      readonly type: "tool_call";
      readonly callId: string;
      readonly toolName: string;
      /** The raw JSON text the model wrote; parsed by the turn so that a broken one can be shown to the model. */
      readonly argsText: string;
      readonly metadata?: ProviderMetadata;
    }
  | {
      readonly type: "finish";
      readonly reason: FinishReason;
      readonly usage: Usage;
      readonly evidence?: ModelEvidence;
    };

/** What a provider said of its answer, in its own words: facts, never an echo of what was asked for. */
export interface ModelEvidence {
  /** The model that really answered. */
  readonly servedModel?: string;
  readonly responseId?: string;
  readonly finishReason?: string;
}

/** One attempt of a model call, as it went. */
export interface AttemptRecord {
  /** From 1. */
  readonly attempt: number;
  readonly outcome: "completed" | "failed" | "aborted";
  readonly durationMs: number;
  /** Something of its answer had come: such an attempt is never repeated. */
  readonly outputStarted: boolean;
  readonly error?: { readonly code: string; readonly message: string };
  /** It is repeated after this long. `counted` is false for a wait the provider asked for, which costs no attempt. */
  readonly retry?: { readonly delayMs: number; readonly counted: boolean };
  readonly usage?: Usage;
  readonly evidence?: ModelEvidence;
  /** What had come of an answer that was never finished. Nothing of it is in the history, and no call of it was made. */
  readonly partial?: readonly Part[];
}

/** What of earlier answers a model was not given back, because another one had minted it. */
export interface ReplayDrop {
  /** The one that had. */
  readonly route: string;
  readonly messages: number;
  /** Reasoning that was left out, and tool calls that went without their metadata. */
  readonly parts: number;
}

/** A model call with all its attempts: plain data, the same every time but for the durations. */
export interface ModelCallRecord {
  readonly modelCallId: string;
  readonly step: number;
  /** The model's id: what its usage is booked under. */
  readonly model: string;
  /** Who exactly was asked (provider, model and endpoint): what an answer minted goes back to no other. */
  readonly route: string;
  readonly attempts: readonly AttemptRecord[];
  readonly replayDrops?: readonly ReplayDrop[];
}

/** Names a model call within its session: the same in every run of it. */
export function modelCallIdOf(turnId: string, step: number): string {
  return `${turnId}#${step}`;
}

/** What a call cost, when the model had said so by its end. */
export function usageOfCall({ attempts }: ModelCallRecord): Usage | undefined {
  return attempts[attempts.length - 1]?.usage;
}

/** A whole completion, as response hooks and history see it. */
export interface ModelResponse {
  readonly parts: readonly Part[];
  readonly reason: FinishReason;
  readonly usage: Usage;
  /** Tool calls whose arguments were not JSON: call id → what the model wrote. */
  readonly brokenArgs?: Readonly<Record<string, string>>;
}
