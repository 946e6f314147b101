import type { LanguageModelV3StreamPart } from "@ai-sdk/provider";
import type { Clock } from "../../async/index.js";
import { type ModelEvent, type ProviderMetadata, TroupeError } from "../../kernel/index.js";
import { modelError, streamCut } from "../boundary/index.js";
import { finishEvent, type ResponseMetadata, toolCallEvent } from "./ai-sdk-parts.js";

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
