import type { Message, Part, ProviderMetadata } from "./messages.js";
import type { ToolSpec } from "./tools.js";
import type { Usage } from "./usage.js";

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
}

export type FinishReason = "stop" | "tool_calls" | "length" | "content_filter" | "error" | "unknown";

/** What a model streams. Deltas of one block share its `blockId`; exactly one `finish` ends a successful stream. */
export type ModelEvent =
  | { readonly type: "text_delta"; readonly blockId: string; readonly text: string }
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
  | { readonly type: "finish"; readonly reason: FinishReason; readonly usage: Usage };

/** A whole completion, as response hooks and history see it. */
export interface ModelResponse {
  readonly parts: readonly Part[];
  readonly reason: FinishReason;
  readonly usage: Usage;
  /** Tool calls whose arguments were not JSON: call id → what the model wrote. */
  readonly brokenArgs?: Readonly<Record<string, string>>;
}
