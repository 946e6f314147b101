import type { Message, Part, ProviderMetadata } from "../history/index.js";
import type { Json, JsonObject } from "../json.js";
import type { ToolCall, ToolRecord, ToolSpec } from "../tools/index.js";
import { NO_USAGE, type Usage } from "../usage/index.js";

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

type Block = { type: "text" | "reasoning"; blockId: string; text: string; metadata?: ProviderMetadata };
type CallPart = Extract<Part, { type: "tool_call" }>;

/** Collects the events of one model call into the response they amount to. */
export class ResponseBuilder {
  readonly #parts: (Block | CallPart)[] = [];
  readonly #broken: Record<string, string> = {};
  #hasBroken = false;
  #reason: FinishReason = "unknown";
  #usage: Usage = NO_USAGE;

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

/** The step a protocol reads from a model's answer: the turn calls tools, runs code, or ends. */
export type ProtocolStep =
  | {
      readonly kind: "tools";
      readonly calls: readonly ToolCall[];
      readonly brokenArgs: Readonly<Record<string, string>>;
    }
  | { readonly kind: "code"; readonly language: string; readonly code: string }
  | { readonly kind: "finish"; readonly text: string; readonly value?: Json };

/** The result of a code step: what the code printed, called and ended with. */
export interface CodeResult {
  /** Lines the code printed, in order; the model is shown them. */
  readonly observations: readonly string[];
  readonly error?: string;
  /** The code ended the turn with this value, or, when it `failed`, with this as what went wrong. */
  readonly terminalFinish?: { readonly value: Json; readonly failed?: boolean };
  readonly toolCalls: readonly ToolRecord[];
  readonly durationMs: number;
}

const NO_BROKEN_ARGS: Readonly<Record<string, string>> = Object.freeze({});

/** Native tool calling: calls are made, an answer without any is the end. */
export function nativeToolStep(response: ModelResponse): ProtocolStep {
  const calls: ToolCall[] = [];
  let text = "";
  for (const part of response.parts) {
    if (part.type === "tool_call") calls.push({ callId: part.callId, toolName: part.toolName, args: part.args });
    else if (part.type === "text") text += part.text;
  }
  if (calls.length === 0) return { kind: "finish", text };
  return { kind: "tools", calls, brokenArgs: response.brokenArgs ?? NO_BROKEN_ARGS };
}

/**
 * An answer as the history keeps it: with exactly the calls that are made of it. Providers refuse a call without a
 * result and a result without a call, and so every later turn.
 */
export function partsWithCalls({ parts }: ModelResponse, step: ProtocolStep): readonly Part[] {
  const calls = step.kind === "tools" ? step.calls : [];
  const made = new Set(calls.map(({ callId }) => callId));
  const kept = parts.filter((part) => part.type !== "tool_call" || made.has(part.callId));
  const written = new Set(kept.map((part) => (part.type === "tool_call" ? part.callId : undefined)));
  const added = calls
    .filter(({ callId }) => !written.has(callId))
    .map((call): Part => ({ type: "tool_call", ...call }));
  return added.length === 0 && kept.length === parts.length ? parts : [...kept, ...added];
}

/** The message the model is shown after its code ran: the printed lines, then the error if there was one. */
export function renderCodeResult({ observations, error }: CodeResult): string {
  const lines = error === undefined ? observations : [...observations, `[Code failed]\n${error}`];
  return lines.length === 0 ? "[The code printed nothing]" : lines.join("\n");
}
