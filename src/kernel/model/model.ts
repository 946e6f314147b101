import type { AnswerPart, Message, Part, ProviderMetadata } from "../history/index.js";
import { type Json, type JsonObject, wellFormed } from "../json.js";
import type { ToolCall, ToolRecord, ToolSpec } from "../tools/index.js";
import { NO_USAGE, type Usage } from "../usage/index.js";
import type { RequestCache } from "./cache.js";
import type { ModelOptions } from "./call-settings.js";

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
  /** How it is to answer, when somebody said. */
  readonly options?: ModelOptions;
  /** The bytes of stored attachments in these messages, by hash. */
  readonly attachments?: ReadonlyMap<string, Uint8Array>;
  /** The form its answer is to have when it is the last one: a model that has a mode for it answers in that. */
  readonly output?: RequestedOutput;
  /** Set when somebody asks the model outside the conversation. */
  readonly direct?: DirectCall;
  /** What a provider is told about caching; absent: nothing. */
  readonly cache?: RequestCache;
}

/** The form a turn's answer is to have: JSON that fits this schema. */
export interface RequestedOutput {
  readonly schema: JsonObject;
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
  | {
      readonly type: "text";
      readonly blockId: string;
      readonly text: string;
      readonly metadata?: ProviderMetadata;
    }
  /** The block is over. Of a block that no event ends so, the end of the answer is the end. */
  | { readonly type: "text_end"; readonly blockId: string; readonly metadata?: ProviderMetadata }
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
  /** More of the arguments of a call that is being written. The call itself comes whole. */
  | { readonly type: "tool_input_delta"; readonly callId: string; readonly toolName: string; readonly text: string }
  /** Something of the answer that comes whole. */
  | { readonly type: "part"; readonly part: AnswerPart }
  /** A file the model made, or its address. Whoever collects the answer keeps the bytes, and makes a `part` of it. */
  | {
      readonly type: "file";
      readonly mediaType: string;
      readonly data: Uint8Array | URL;
      readonly metadata?: ProviderMetadata;
    }
  | {
      readonly type: "finish";
      readonly reason: FinishReason;
      readonly usage: Usage;
      /** Counts the provider did not say; they are 0 in `usage`, and estimated before anybody adds them up. */
      readonly unsaid?: readonly ("inputTokens" | "outputTokens")[];
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
  /** How long the first of its text, reasoning or tool calls took to come. Absent when none came. */
  readonly firstTokenMs?: number;
  /** The model that was asked, by its id, when attempts of the call went to several. */
  readonly model?: string;
  readonly error?: { readonly code: string; readonly message: string };
  /** It is repeated after this long. `counted` is false only in records of older releases, in which some waits cost no attempt. */
  readonly retry?: { readonly delayMs: number; readonly counted: boolean };
  readonly usage?: Usage;
  /** The provider did not say its usage, or not all of it: it is estimated by the length of the texts. */
  readonly usageEstimated?: true;
  readonly evidence?: ModelEvidence;
  /** What had come of an answer that was never finished. Nothing of it is in the history, and no call of it was made. */
  readonly partial?: readonly Part[];
}

/** What of earlier answers a model was not given back, because another one had minted it. */
export interface ReplayDrop {
  /** The one that had. */
  readonly route: string;
  readonly messages: number;
  /** Reasoning that was left out, and other parts that went without their metadata. */
  readonly parts: number;
}

/** A model call with all its attempts: plain data, the same every time but for the durations. */
export interface ModelCallRecord {
  readonly modelCallId: string;
  readonly step: number;
  /** The id of the model that answered, or was asked last: what its usage is booked under. */
  readonly model: string;
  /** Who exactly was asked (provider, model and endpoint): what an answer minted goes back to no other. */
  readonly route: string;
  readonly attempts: readonly AttemptRecord[];
  /** What was wrong with the form of the answer, when the turn asked for one. */
  readonly misfit?: string;
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

/** A call's arguments may be nested this deep; what is stored allows little more, and a result no more either. */
export const MAX_ARGS_DEPTH = 100;

/** Our id of a call, and the provider's. */
interface CallIds {
  readonly callId: string;
  readonly providerCallId: string;
}

/** Collects the events of one model call into the response they amount to. */
export class ResponseBuilder {
  /** The ids that the provider gave to calls the turn has made before. Asked for with the first call. */
  readonly #earlierCalls: () => Iterable<string>;
  /** Gives a call an id that no other has. */
  readonly #mint: (() => string) | undefined;
  #callIds: Set<string> | undefined;
  /** Ids that were told before their calls came whole, by the provider's. */
  #announced: Map<string, CallIds> | undefined;
  readonly #parts: (Block | CallPart | AnswerPart)[] = [];
  readonly #broken: Record<string, string> = {};
  #hasBroken = false;
  #reason: FinishReason = "unknown";
  #usage: Usage = NO_USAGE;

  constructor(earlierCalls: () => Iterable<string> = () => [], mint?: () => string) {
    this.#earlierCalls = earlierCalls;
    this.#mint = mint;
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
      case "text_end":
        if (event.metadata !== undefined) this.#block("text", event.blockId).metadata = event.metadata;
        break;
      case "reasoning_end":
        this.#block("reasoning", event.blockId).metadata = event.metadata;
        break;
      case "tool_call":
        this.#toolCall(event);
        break;
      case "part":
        this.#parts.push(wellFormed(event.part));
        break;
      // A call is kept whole, and a message holds no bytes.
      case "tool_input_delta":
      case "file":
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
      if (part.type !== "text" && part.type !== "reasoning") parts.push(part);
      else if (part.text !== "" || (part.type === "reasoning" && part.metadata !== undefined)) {
        const { type, text, metadata } = part;
        parts.push({ type, text: text.toWellFormed(), ...(metadata && { metadata }) });
      }
    }
    return { parts, reason, usage: this.#usage, ...(this.#hasBroken && { brokenArgs: this.#broken }) };
  }

  /** What a call is called that the provider names so: the same before and when it comes whole. */
  callIdOf(given: string): string {
    this.#announced ??= new Map();
    const ids = this.#announced.get(given) ?? this.#newIds(given);
    this.#announced.set(given, ids);
    return ids.callId;
  }

  #newIds(given: string): CallIds {
    const providerCallId = this.#providerId(given);
    return { callId: this.#mint?.() ?? providerCallId, providerCallId };
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

  #toolCall({ callId: given, toolName, argsText, metadata }: Extract<ModelEvent, { type: "tool_call" }>): void {
    const { callId, providerCallId } = this.#announced?.get(given) ?? this.#newIds(given);
    this.#announced?.delete(given);
    let args = argsOf(argsText);
    if (args === undefined) {
      args = argsText;
      this.#broken[callId] = argsText;
      this.#hasBroken = true;
    }
    const own = callId === providerCallId ? {} : { providerCallId };
    this.#parts.push({ type: "tool_call", callId, ...own, toolName, args, ...(metadata && { metadata }) });
  }

  /**
   * Providers refuse two results for one id, and some number the calls of each answer anew: a later call of the same id
   * in a turn gets another one, and the provider is shown it with the call and with the result.
   */
  #providerId(given: string): string {
    this.#callIds ??= new Set(this.#earlierCalls());
    let callId = given;
    for (let n = 2; this.#callIds.has(callId); n++) callId = `${given}_${n}`;
    this.#callIds.add(callId);
    return callId;
  }
}

/** The ids by which the provider knows the calls in these messages. */
export function providerCallIdsOf(messages: readonly Message[]): string[] {
  return messages.flatMap(({ parts }) =>
    parts.flatMap((part) => (part.type === "tool_call" ? [part.providerCallId ?? part.callId] : [])),
  );
}

/** Undefined when the text is not JSON, or nested so deep that neither a store nor another thread could take it. */
function argsOf(text: string): Json | undefined {
  try {
    const args = text.trim() === "" ? {} : (JSON.parse(text) as Json);
    // Each level is two characters at least.
    return text.length > 2 * MAX_ARGS_DEPTH && isDeeper(args, MAX_ARGS_DEPTH) ? undefined : wellFormed(args);
  } catch {
    return undefined;
  }
}

function isDeeper(value: Json, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1));
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
