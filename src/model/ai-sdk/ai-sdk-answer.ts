import type {
  LanguageModelV3Content,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  LanguageModelV3ToolCall,
} from "@ai-sdk/provider";
import type { Clock } from "../../async/index.js";
import type { FinishReason, ModelEvent, ModelEvidence, ProviderMetadata, Usage } from "../../kernel/index.js";
import { malformed, modelError, streamCut } from "../boundary/index.js";
import { keptMetadata, providerCallEvent, wholePartEvent } from "./ai-sdk-parts.js";

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
  const unsaid = unsaidOf(usage);
  return {
    type: "finish",
    reason: reasonOf(finishReason),
    usage: usageOf(usage),
    ...(unsaid.length > 0 && { unsaid }),
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

export function toolCallEvent(call: LanguageModelV3ToolCall): ModelEvent {
  if (call.providerExecuted) return providerCallEvent(call);
  return {
    type: "tool_call",
    callId: call.toolCallId,
    toolName: call.toolName,
    argsText: call.input.trim() === "" ? "{}" : call.input,
    ...keptMetadata(call.providerMetadata),
  };
}

/** A word in version 2, `{ unified, raw }` since version 3. */
function reasonOf(reason: unknown): FinishReason {
  const word = nested(reason) === undefined ? reason : nested(reason)?.unified;
  return (typeof word === "string" ? REASONS[word] : undefined) ?? "unknown";
}

/**
 * Flat numbers in version 2, `{ inputTokens: { total, … }, … }` since version 3. What a provider omits counts as 0 here,
 * and is `unsaid`; what it says is passed on as it is, to be checked where every model's is.
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

function unsaidOf(usage: unknown): ("inputTokens" | "outputTokens")[] {
  const said = (usage ?? {}) as Record<string, unknown>;
  return (["inputTokens", "outputTokens"] as const).filter((name) => {
    const counts = nested(said[name]);
    return isUnknown(counts ? counts.total : said[name]);
  });
}

function nested(value: unknown): Record<string, unknown> | undefined {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined;
}

function count(value: unknown): number {
  return isUnknown(value) ? 0 : (value as number); // checked: `checkUsage`
}

/** Providers say that they do not know by leaving it out, null or NaN. */
function isUnknown(value: unknown): boolean {
  return value === undefined || value === null || Number.isNaN(value);
}

/** Turns what an AI SDK model generated in one go into model events, `finish` last. */
export function* generatedEvents(generated: unknown): Generator<ModelEvent> {
  const { content, finishReason, usage, response } = (generated ?? {}) as Partial<LanguageModelV3GenerateResult>;
  if (!Array.isArray(content)) throw malformed("it holds no list of content");
  for (const [index, part] of content.entries()) yield* contentEvents(part, index);
  yield finishEvent({ finishReason, usage }, response);
}

function* contentEvents(part: LanguageModelV3Content, index: number): Generator<ModelEvent> {
  switch (part?.type) {
    case "text":
      if (part.text !== "")
        yield { type: "text", blockId: `text-${index}`, text: part.text, ...keptMetadata(part.providerMetadata) };
      return;
    case "reasoning": {
      const blockId = `reasoning-${index}`;
      const { metadata } = keptMetadata(part.providerMetadata);
      if (part.text !== "") yield { type: "reasoning_delta", blockId, text: part.text };
      if (metadata) yield { type: "reasoning_end", blockId, metadata };
      return;
    }
    case "tool-call":
      yield toolCallEvent(part);
      return;
    case undefined:
      throw malformed("it holds content that is no part");
    default: {
      const whole = wholePartEvent(part);
      if (whole) yield whole;
    }
  }
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
        blocks.note("text", part);
        if (part.delta === "") break;
        for (const call of calls.take()) yield call;
        yield { type: "text_delta", blockId: blocks.spokenBy("text", part), text: part.delta };
        break;
      case "text-end": {
        const end = blocks.end("text", part);
        if (end) yield end;
        break;
      }
      case "reasoning-start":
        blocks.open("reasoning", part);
        break;
      case "reasoning-delta":
        blocks.note("reasoning", part);
        if (part.delta === "") break;
        for (const call of calls.take()) yield call;
        yield { type: "reasoning_delta", blockId: blocks.spokenBy("reasoning", part), text: part.delta };
        break;
      case "reasoning-end": {
        const end = blocks.end("reasoning", part);
        if (!end) break;
        for (const call of calls.take()) yield call;
        yield end;
        break;
      }
      case "tool-input-start":
        calls.start(part);
        break;
      case "tool-input-delta": {
        const more = calls.extend(part);
        if (more) yield more;
        break;
      }
      case "tool-call":
        calls.finish(part);
        break;
      case "finish":
        calls.finishRest();
        for (const call of calls.take()) yield call;
        for (const end of blocks.endRest()) yield end;
        yield finishEvent(part, response);
        return;
      case "response-metadata":
        response = part;
        break;
      case "error":
        throw modelError(part.error, { moment: "streaming", clock });
      default: {
        const whole = wholePartEvent(part);
        if (!whole) break;
        for (const call of calls.take()) yield call;
        yield whole;
      }
    }
  }
  throw streamCut();
}

type BlockKind = "text" | "reasoning";
type BlockEnd = Extract<ModelEvent, { type: "text_end" | "reasoning_end" }>;

interface OpenBlock {
  readonly kind: BlockKind;
  readonly blockId: string;
  /** Something of its text came. */
  spoke: boolean;
  metadata?: ProviderMetadata;
}

/** Gives every block its own id, though providers may reuse theirs, and gathers its metadata. */
class Blocks {
  readonly #opened = new Map<string, number>();
  readonly #open = new Map<string, OpenBlock>();

  open(kind: BlockKind, part: StreamPart<"text-start" | "reasoning-start">): void {
    const key = `${kind}-${part.id}`;
    const times = (this.#opened.get(key) ?? 0) + 1;
    this.#opened.set(key, times);
    this.#open.set(key, { kind, blockId: times === 1 ? key : `${key}-${times}`, spoke: false });
    this.note(kind, part);
  }

  /** The id of the block that says something now. */
  spokenBy(kind: BlockKind, part: { readonly id: string }): string {
    const block = this.#blockOf(kind, part);
    block.spoke = true;
    return block.blockId;
  }

  /** Anthropic sends a signature with the last delta and redacted content with the start, so every part may add. */
  note(
    kind: BlockKind,
    part: StreamPart<
      "text-start" | "text-delta" | "text-end" | "reasoning-start" | "reasoning-delta" | "reasoning-end"
    >,
  ): void {
    if (!part.providerMetadata) return;
    const block = this.#blockOf(kind, part);
    const merged = { ...block.metadata };
    for (const [provider, fields] of Object.entries(part.providerMetadata as ProviderMetadata)) {
      merged[provider] = { ...merged[provider], ...fields };
    }
    block.metadata = merged;
  }

  /** The end of a text that said something, or the block's metadata, when it has any. */
  end(kind: BlockKind, part: StreamPart<"text-end" | "reasoning-end">): BlockEnd | undefined {
    this.note(kind, part);
    const key = `${kind}-${part.id}`;
    const block = this.#open.get(key);
    this.#open.delete(key);
    if (block?.kind === "text" && block.spoke) return { type: "text_end", blockId: block.blockId, ...keptOf(block) };
    return block && endOf(block);
  }

  /** Of blocks whose end the provider did not say. */
  endRest(): readonly BlockEnd[] {
    return [...this.#open.values()].flatMap((block) => endOf(block) ?? []);
  }

  /** Some providers never say that a block begins. */
  #blockOf(kind: BlockKind, { id }: { readonly id: string }): OpenBlock {
    const key = `${kind}-${id}`;
    const open = this.#open.get(key);
    if (open !== undefined) return open;
    const times = this.#opened.get(key) ?? 1;
    const block: OpenBlock = { kind, blockId: times === 1 ? key : `${key}-${times}`, spoke: false };
    this.#open.set(key, block);
    return block;
  }
}

function keptOf({ metadata }: OpenBlock): { readonly metadata?: ProviderMetadata } {
  return metadata === undefined ? {} : { metadata };
}

/** Redacted reasoning is all metadata; a text that says nothing is none, and providers refuse it when it goes back. */
function endOf({ kind, blockId, spoke, metadata }: OpenBlock): BlockEnd | undefined {
  if (metadata === undefined || (kind === "text" && !spoke)) return undefined;
  return { type: kind === "text" ? "text_end" : "reasoning_end", blockId, metadata };
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

  /** What is to be told of it: nothing of a call that its provider makes itself. */
  extend({ id, delta }: StreamPart<"tool-input-delta">): ModelEvent | undefined {
    const call = this.#open.get(id);
    if (call === undefined) return undefined;
    call.text += delta;
    const { toolName, providerExecuted } = call.start;
    return providerExecuted || delta === ""
      ? undefined
      : { type: "tool_input_delta", callId: id, toolName, text: delta };
  }

  finish(call: StreamPart<"tool-call">): void {
    this.#open.delete(call.toolCallId);
    if (this.#finished.has(call.toolCallId)) return;
    this.#finished.add(call.toolCallId);
    this.#held.push(toolCallEvent(call));
  }

  finishRest(): void {
    for (const { start, text } of [...this.#open.values()]) {
      const { id, toolName, inputEncoding, providerExecuted = false, providerMetadata } = start;
      const input = inputEncoding === "text" ? JSON.stringify(text) : text;
      const said = providerMetadata && { providerMetadata };
      this.finish({ type: "tool-call", toolCallId: id, toolName, input, providerExecuted, ...said });
    }
  }
}

const NO_EVENTS: readonly ModelEvent[] = [];

function streamPart(value: unknown): LanguageModelV3StreamPart {
  if (typeof value === "object" && value !== null && "type" in value) return value as LanguageModelV3StreamPart;
  throw malformed("it holds something that is no stream part");
}
