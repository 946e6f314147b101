import type { Part, ProviderMetadata } from "../history/index.js";
import type { Json } from "../json.js";
import { NO_USAGE, type Usage } from "../usage/index.js";
import type { FinishReason, ModelEvent, ModelResponse } from "./model.js";

type Block = { type: "text" | "reasoning"; blockId: string; text: string; metadata?: ProviderMetadata };
type CallPart = Extract<Part, { type: "tool_call" }>;

/** Collects the events of one model call into the response they amount to. */
export class ResponseBuilder {
  readonly #parts: (Block | CallPart)[] = [];
  readonly #broken: Record<string, string> = {};
  #hasBroken = false;
  #reason: FinishReason = "unknown";
  #usage: Usage = NO_USAGE;
  #finished = false;

  get finished(): boolean {
    return this.#finished;
  }

  add(event: ModelEvent): void {
    switch (event.type) {
      case "text_delta":
        this.#block("text", event.blockId).text += event.text;
        break;
      case "text":
        this.#parts.push({ ...event });
        break;
      case "reasoning_delta":
        this.#block("reasoning", event.blockId).text += event.text;
        break;
      case "reasoning_end":
        this.#block("reasoning", event.blockId).metadata = event.metadata;
        break;
      case "tool_call":
        this.#toolCall(event);
        break;
      case "finish":
        this.#reason = event.reason;
        this.#usage = event.usage;
        this.#finished = true;
        break;
    }
  }

  /** `reason` overrides what the model said: an aborted stream counts as a stop. */
  build(reason: FinishReason = this.#reason): ModelResponse {
    const parts: Part[] = [];
    for (const part of this.#parts) {
      if (part.type === "tool_call") parts.push(part);
      else if (part.type === "text") {
        if (part.text !== "") parts.push({ type: "text", text: part.text });
      } else if (part.text !== "" || part.metadata !== undefined) {
        parts.push({ type: "reasoning", text: part.text, ...(part.metadata && { metadata: part.metadata }) });
      }
    }
    return { parts, reason, usage: this.#usage, ...(this.#hasBroken && { brokenArgs: this.#broken }) };
  }

  #block(type: "text" | "reasoning", blockId: string): Block {
    for (let i = this.#parts.length - 1; i >= 0; i--) {
      const part = this.#parts[i];
      if (part !== undefined && part.type === type && part.blockId === blockId) return part;
    }
    const block: Block = { type, blockId, text: "" };
    this.#parts.push(block);
    return block;
  }

  #toolCall({ callId, toolName, argsText, metadata }: Extract<ModelEvent, { type: "tool_call" }>): void {
    let args: Json;
    try {
      args = argsText.trim() === "" ? {} : (JSON.parse(argsText) as Json);
    } catch {
      args = argsText;
      this.#broken[callId] = argsText;
      this.#hasBroken = true;
    }
    this.#parts.push({ type: "tool_call", callId, toolName, args, ...(metadata && { metadata }) });
  }
}
