import type { LanguageModelV3ToolCall } from "@ai-sdk/provider";
import type { FinishReason, ModelEvent, ProviderMetadata, Usage } from "../kernel/index.js";

/** What streamed and whole answers of an AI SDK model have in common. */
const REASONS: Readonly<Record<string, FinishReason>> = {
  stop: "stop",
  length: "length",
  error: "error",
  "tool-calls": "tool_calls",
  "content-filter": "content_filter",
};

/** The end of an answer, as every version says it. */
export function finishEvent(answer: { readonly finishReason: unknown; readonly usage: unknown }): ModelEvent {
  return { type: "finish", reason: reasonOf(answer.finishReason), usage: usageOf(answer.usage) };
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
  const word = typeof reason === "object" && reason !== null ? (reason as { unified?: unknown }).unified : reason;
  return (typeof word === "string" ? REASONS[word] : undefined) ?? "unknown";
}

/** Flat numbers in version 2, `{ inputTokens: { total, … }, … }` since version 3. What a provider omits counts as 0. */
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

function count(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
