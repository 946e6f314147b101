import type { LanguageModelV3Content, LanguageModelV3GenerateResult } from "@ai-sdk/provider";
import { type ModelEvent, type ProviderMetadata, TroupeError } from "../../kernel/index.js";
import { finishEvent, toolCallEvent } from "./ai-sdk-parts.js";

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
