import type { FinishReason, ModelResponse } from "../model/index.js";
import type { StopReason, TurnIssue } from "./outcome.js";

/** How a turn ends for what its model, or its provider, did. */
export interface ModelEnd {
  readonly reason: StopReason;
  readonly issue: TurnIssue;
}

export const modelIssue = (code: string, message: string): TurnIssue => ({ kind: "model", code, message });

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
