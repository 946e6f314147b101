import type {
  LanguageModelV3Content,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  LanguageModelV3ToolCall,
} from "@ai-sdk/provider";
import type { Clock } from "../../async/index.js";
import {
  type FinishReason,
  type ModelEvent,
  type ModelEvidence,
  type ProviderMetadata,
  TroupeError,
  type Usage,
} from "../../kernel/index.js";
import { modelError, streamCut } from "../boundary/index.js";

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

/** Turns what an AI SDK model generated in one go into model events, `finish` last. */
export function* generatedEvents(generated: unknown): Generator<ModelEvent> {
  const { content, finishReason, usage, response } = (generated ?? {}) as Partial<LanguageModelV3GenerateResult>;
  if (!Array.isArray(content)) throw malformed("no list of content");
  for (const [index, part] of content.entries()) yield* contentEvents(part, index);
  yield finishEvent({ finishReason, usage }, response);
}

function* contentEvents(part: LanguageModelV3Content, index: number): Generator<ModelEvent> {
  switch (part?.type) {
    case "text":
      if (part.text !== "") yield { type: "text", blockId: `text-${index}`, text: part.text };
      return;
    case "reasoning": {
      const blockId = `reasoning-${index}`;
      const metadata = part.providerMetadata as ProviderMetadata | undefined; // the same JSON, readonly
      if (part.text !== "") yield { type: "reasoning_delta", blockId, text: part.text };
      if (metadata) yield { type: "reasoning_end", blockId, metadata };
      return;
    }
    case "tool-call": {
      const call = toolCallEvent(part);
      if (call) yield call;
      return;
    }
    case undefined:
      throw malformed("content that is no part");
    default: // Sources, files and provider-executed results are not part of a turn.
  }
}

function malformed(what: string): TroupeError {
  return new TroupeError("model_stream_malformed", `The model's answer holds ${what}.`, { retryable: true });
}

type StreamPart<T extends LanguageModelV3StreamPart["type"]> = Extract<LanguageModelV3StreamPart, { type: T }>;

/** Turns the parts of an AI SDK stream into model events. Stops after `finish`; throws when the parts end without one. */
export async function* modelEvents(parts: AsyncIterable<unknown>, clock: Clock): AsyncGenerator<ModelEvent> {
  const blocks = new Blocks();
  const calls = new ToolCalls();
  let response: ResponseMetadata | undefined;
  for await (const value of parts) {
    const part = streamPart(value);
    switch (part.type) {
      case "text-start":
        blocks.open("text", part);
        break;
      case "text-delta":
        if (part.delta === "") break;
        for (const call of calls.take()) yield call;
        yield { type: "text_delta", blockId: blocks.idOf("text", part), text: part.delta };
        break;
      case "reasoning-start":
        blocks.open("reasoning", part);
        break;
      case "reasoning-delta":
        blocks.note(part);
        if (part.delta === "") break;
        for (const call of calls.take()) yield call;
        yield { type: "reasoning_delta", blockId: blocks.idOf("reasoning", part), text: part.delta };
        break;
      case "reasoning-end": {
        blocks.note(part);
        const metadata = blocks.takeMetadata(part);
        if (!metadata) break;
        for (const call of calls.take()) yield call;
        yield { type: "reasoning_end", blockId: blocks.idOf("reasoning", part), metadata };
        break;
      }
      case "tool-input-start":
        calls.start(part);
        break;
      case "tool-input-delta":
        calls.extend(part);
        break;
      case "tool-call":
        calls.finish(part);
        break;
      case "finish":
        calls.finishRest();
        for (const call of calls.take()) yield call;
        yield finishEvent(part, response);
        return;
      case "response-metadata":
        response = part;
        break;
      case "error":
        throw modelError(part.error, { moment: "streaming", clock });
      default: // Sources, files, raw chunks and provider-executed results are not part of a turn.
    }
  }
  throw streamCut();
}

/** Gives every block its own id, though providers may reuse theirs, and gathers the metadata of reasoning blocks. */
class Blocks {
  readonly #opened = new Map<string, number>();
  readonly #metadata = new Map<string, ProviderMetadata>();

  open(kind: "text" | "reasoning", part: StreamPart<"text-start" | "reasoning-start">): void {
    const key = `${kind}-${part.id}`;
    this.#opened.set(key, (this.#opened.get(key) ?? 0) + 1);
    if (kind === "reasoning") this.note(part);
  }

  idOf(kind: "text" | "reasoning", { id }: { readonly id: string }): string {
    const times = this.#opened.get(`${kind}-${id}`) ?? 1;
    return times === 1 ? `${kind}-${id}` : `${kind}-${id}-${times}`;
  }

  /** Anthropic sends a signature with the last delta and redacted content with the start, so every part may add. */
  note({
    id,
    providerMetadata,
  }: StreamPart<"reasoning-start" | "reasoning-delta" | "reasoning-end" | "text-start">): void {
    if (!providerMetadata) return;
    const merged = { ...this.#metadata.get(id) };
    for (const [provider, fields] of Object.entries(providerMetadata as ProviderMetadata)) {
      merged[provider] = { ...merged[provider], ...fields };
    }
    this.#metadata.set(id, merged);
  }

  takeMetadata({ id }: { readonly id: string }): ProviderMetadata | undefined {
    const metadata = this.#metadata.get(id);
    this.#metadata.delete(id);
    return metadata;
  }
}

/**
 * Most providers send a whole `tool-call`; some only the pieces of its input. One event per call either way, and not before
 * something follows it: of a response that breaks off, the OpenAI-compatible provider passes half a call off as a whole
 * one, and a call that was told keeps the attempt from being repeated.
 */
class ToolCalls {
  readonly #open = new Map<string, { readonly start: StreamPart<"tool-input-start">; text: string }>();
  readonly #finished = new Set<string>();
  #held: ModelEvent[] = [];

  /** The calls since the last time. */
  take(): readonly ModelEvent[] {
    if (this.#held.length === 0) return NO_EVENTS;
    const held = this.#held;
    this.#held = [];
    return held;
  }

  start(start: StreamPart<"tool-input-start">): void {
    this.#open.set(start.id, { start, text: "" });
  }

  extend({ id, delta }: StreamPart<"tool-input-delta">): void {
    const call = this.#open.get(id);
    if (call) call.text += delta;
  }

  finish(call: StreamPart<"tool-call">): void {
    this.#open.delete(call.toolCallId);
    const event = toolCallEvent(call);
    if (event === undefined || this.#finished.has(call.toolCallId)) return;
    this.#finished.add(call.toolCallId);
    this.#held.push(event);
  }

  finishRest(): void {
    for (const { start, text } of [...this.#open.values()]) {
      const { id, toolName, inputEncoding, providerExecuted = false } = start;
      const input = inputEncoding === "text" ? JSON.stringify(text) : text;
      this.finish({ type: "tool-call", toolCallId: id, toolName, input, providerExecuted });
    }
  }
}

const NO_EVENTS: readonly ModelEvent[] = [];

function streamPart(value: unknown): LanguageModelV3StreamPart {
  if (typeof value === "object" && value !== null && "type" in value) return value as LanguageModelV3StreamPart;
  throw new TroupeError("model_stream_malformed", "The model's stream holds something that is no stream part.", {
    retryable: true,
  });
}
