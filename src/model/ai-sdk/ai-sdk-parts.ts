import type { LanguageModelV3ToolCall } from "@ai-sdk/provider";
import type { FinishReason, ModelEvent, ModelEvidence, ProviderMetadata, Usage } from "../../kernel/index.js";

/** What streamed and whole answers of an AI SDK model have in common. */
const REASONS: Readonly<Record<string, FinishReason>> = {
  stop: "stop",
  length: "length",
  error: "error",
  "tool-calls": "tool_calls",
  "content-filter": "content_filter",
};

/** What a provider says of its response: `response-metadata` in a stream, `response` of a whole answer. */
export interface ResponseMetadata {
  readonly id?: unknown;
  readonly modelId?: unknown;
}

/** The end of an answer, as every version says it. */
export function finishEvent(
  { finishReason, usage }: { readonly finishReason: unknown; readonly usage: unknown },
  response: ResponseMetadata | undefined,
): ModelEvent {
  const evidence = evidenceOf(response, finishReason);
  return {
    type: "finish",
    reason: reasonOf(finishReason),
    usage: usageOf(usage),
    ...(Object.keys(evidence).length > 0 && { evidence }),
  };
}

function evidenceOf({ id, modelId }: ResponseMetadata = {}, reason: unknown): ModelEvidence {
  const raw = nested(reason)?.raw;
  return {
    ...(typeof modelId === "string" && { servedModel: modelId }),
    ...(typeof id === "string" && { responseId: id }),
    ...(typeof raw === "string" && { finishReason: raw }),
  };
}

/** Nothing for a call the provider runs itself. */
export function toolCallEvent(call: LanguageModelV3ToolCall): ModelEvent | undefined {
  if (call.providerExecuted) return undefined;
  const metadata = call.providerMetadata as ProviderMetadata | undefined; // the same JSON, readonly
  return {
    type: "tool_call",
    callId: call.toolCallId,
    toolName: call.toolName,
    argsText: call.input.trim() === "" ? "{}" : call.input,
    ...(metadata && { metadata }),
  };
}

/** A word in version 2, `{ unified, raw }` since version 3. */
function reasonOf(reason: unknown): FinishReason {
  const word = nested(reason) === undefined ? reason : nested(reason)?.unified;
  return (typeof word === "string" ? REASONS[word] : undefined) ?? "unknown";
}

/**
 * Flat numbers in version 2, `{ inputTokens: { total, … }, … }` since version 3. What a provider omits counts as 0; what
 * it says is passed on as it is, to be checked where every model's is.
 */
function usageOf(usage: unknown): Usage {
  const { inputTokens, outputTokens, cachedInputTokens, reasoningTokens } = (usage ?? {}) as Record<string, unknown>;
  const input = nested(inputTokens);
  const output = nested(outputTokens);
  return {
    inputTokens: count(input ? input.total : inputTokens),
    outputTokens: count(output ? output.total : outputTokens),
    cacheReadTokens: count(input ? input.cacheRead : cachedInputTokens),
    cacheWriteTokens: count(input?.cacheWrite),
    reasoningTokens: count(output ? output.reasoning : reasoningTokens),
  };
}

function nested(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
}

/** Providers say that they do not know by leaving it out, null or NaN. */
function count(value: unknown): number {
  return value === undefined || value === null || Number.isNaN(value) ? 0 : (value as number); // checked: `checkUsage`
}
