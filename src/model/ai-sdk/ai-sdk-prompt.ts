import type {
  JSONSchema7,
  LanguageModelV3CallOptions,
  LanguageModelV3FilePart,
  LanguageModelV3FunctionTool,
  LanguageModelV3Message,
  LanguageModelV3ProviderTool,
  LanguageModelV3ToolCallPart,
  SharedV3ProviderOptions,
} from "@ai-sdk/provider";
import {
  type AttachmentPart,
  attachmentMissing,
  type DirectOutput,
  type Json,
  type Message,
  type ModelRequest,
  type Part,
  type ProviderMetadata,
  type ProviderPart,
  type ProviderToolCallPart,
  type ProviderToolResultPart,
  type ReplayDrop,
  type ToolSpec,
  textOf,
} from "../../kernel/index.js";
import type { ReportReplayDrops } from "../boundary/index.js";
import { type CacheHints, cacheMarker, withCacheKey } from "./ai-sdk-cache.js";
import { passedOn } from "./ai-sdk-options.js";
import { type BytesOf, type PromptForm, taggedData, toolOutput } from "./ai-sdk-tool-output.js";

type AssistantContent = Extract<LanguageModelV3Message, { role: "assistant" }>["content"];
type UserContent = Extract<LanguageModelV3Message, { role: "user" }>["content"];
type ToolContent = Extract<LanguageModelV3Message, { role: "tool" }>["content"];

/** Tools of the provider itself, by the names the model calls them by. */
export type ProviderTools = ReadonlyMap<string, LanguageModelV3ProviderTool>;

const NO_PROVIDER_TOOLS: ProviderTools = new Map();

interface CallFacts {
  /** The model that is asked. */
  readonly route: string;
  readonly form: PromptForm;
  readonly abortSignal: AbortSignal;
  readonly onReplayDropped?: ReportReplayDrops | undefined;
  readonly providerTools?: ProviderTools | undefined;
  /** What the model's provider wants to be told about caching. */
  readonly hints?: CacheHints | undefined;
}

/** A request as an AI SDK model takes it. Versions 2, 3 and 4 agree on everything used here but files. */
export function callOptions(
  request: ModelRequest,
  { route, form, abortSignal, onReplayDropped, providerTools = NO_PROVIDER_TOOLS, hints }: CallFacts,
): LanguageModelV3CallOptions {
  const prompt: LanguageModelV3Message[] = [];
  const marker = cacheMarker(request, hints);
  if (request.system !== "") prompt.push({ role: "system", content: request.system });
  marker?.system(prompt);
  const rendering = new Rendering(new ReplayDrops(route), form, request.attachments ?? NO_ATTACHMENTS);
  for (const messages of [request.history, request.turn]) {
    for (const message of messages) {
      add(prompt, message, rendering);
      marker?.passed(message, prompt);
    }
  }
  if (rendering.drops.any) onReplayDropped?.(rendering.drops.list());
  const tools = toolsOf(request, providerTools);
  marker?.tools(tools);
  const options: LanguageModelV3CallOptions = {
    prompt,
    abortSignal,
    // A route is `provider:model@endpoint`.
    ...passedOn(request.options ?? {}, tools, route.slice(0, route.indexOf(":"))),
    ...responseFormat(request.output ? { type: "json", ...request.output } : request.direct?.output),
  };
  return withCacheKey(options, request, hints);
}

/** Text is what a model answers anyway; only JSON is asked for. */
function responseFormat(output: DirectOutput | undefined): Pick<LanguageModelV3CallOptions, "responseFormat"> {
  if (output?.type !== "json") return {};
  const { schema, name } = output;
  return {
    responseFormat: {
      type: "json",
      // A JSON Schema by contract of DirectOutput; the provider refuses one that is none.
      ...(schema !== undefined && { schema: schema as unknown as JSONSchema7 }),
      ...(name !== undefined && { name }),
    },
  };
}

const NO_ATTACHMENTS: ReadonlyMap<string, Uint8Array> = new Map();

/** One prompt while it is written. */
class Rendering {
  readonly drops: ReplayDrops;
  readonly form: PromptForm;
  readonly #attachments: ReadonlyMap<string, Uint8Array>;
  /** What calls came with, by the call's id. */
  #calls: Map<string, ProviderMetadata> | undefined;
  /** The provider's own ids of calls, by ours. */
  #ids: Map<string, string> | undefined;

  constructor(drops: ReplayDrops, form: PromptForm, attachments: ReadonlyMap<string, Uint8Array>) {
    this.drops = drops;
    this.form = form;
    this.#attachments = attachments;
  }

  readonly bytesOf: BytesOf = ({ source }) => {
    const data = source.kind === "url" ? new URL(source.url) : this.#attachments.get(source.hash);
    if (data !== undefined) return data;
    throw attachmentMissing(source.kind === "url" ? source.url : source.hash);
  };

  file(part: AttachmentPart): LanguageModelV3FilePart {
    const { mediaType, name } = part;
    const data = this.bytesOf(part);
    // Version 4 says what kind of data it is.
    const told = this.form.version === "v4" ? (taggedData(data) as never) : data;
    return { type: "file", mediaType, data: told, ...(name !== undefined && { filename: name }) };
  }

  noteCall(callId: string, metadata: ProviderMetadata | undefined): void {
    if (metadata === undefined) return;
    this.#calls ??= new Map();
    this.#calls.set(callId, metadata);
  }

  /** The id that goes back with the call, and with its result. */
  noteId({ callId, providerCallId }: Extract<Part, { type: "tool_call" }>): string {
    if (providerCallId === undefined) return callId;
    this.#ids ??= new Map();
    this.#ids.set(callId, providerCallId);
    return providerCallId;
  }

  idOf(callId: string): string {
    return this.#ids?.get(callId) ?? callId;
  }

  /** A result goes back with what its call came with: providers tell by it which result belongs to what. */
  ofCall(callId: string): ProviderMetadata | undefined {
    return this.#calls?.get(callId);
  }
}

/** Messages that say nothing are left out: several providers refuse empty content. */
function add(prompt: LanguageModelV3Message[], message: Message, rendering: Rendering): void {
  switch (message.role) {
    case "system": {
      const content = textOf(message);
      if (content !== "") prompt.push({ role: "system", content });
      return;
    }
    case "user": {
      const content = message.parts.flatMap((part) => userPart(part, rendering));
      if (content.length > 0) prompt.push({ role: "user", content });
      return;
    }
    case "assistant": {
      const native = rendering.drops.isNative(message);
      const content = message.parts.flatMap((part) => assistantPart(part, native, rendering));
      if (content.length > 0) prompt.push({ role: "assistant", content });
      return;
    }
    case "tool": {
      const content = message.parts.flatMap((part) => toolPart(part, rendering));
      if (content.length > 0) prompt.push({ role: "tool", content });
      return;
    }
    // Not part of the conversation.
    case "record":
      return;
    default:
      message.role satisfies never;
  }
}

function userPart(part: Part, rendering: Rendering): UserContent {
  if (part.type === "text") return part.text === "" ? [] : [{ type: "text", text: part.text }];
  return part.type === "attachment" ? [rendering.file(part)] : [];
}

function assistantPart(part: Part, native: boolean, rendering: Rendering): AssistantContent {
  switch (part.type) {
    case "text":
      if (part.text === "") return [];
      return [{ type: "text", text: part.text, ...(native && providerOptions(part.metadata)) }];
    case "attachment":
      return [{ ...rendering.file(part), ...(native && providerOptions(part.metadata)) }];
    case "reasoning":
      if (!native) return [];
      // Text may be empty: redacted reasoning is all metadata.
      return [{ type: "reasoning", text: part.text, ...providerOptions(part.metadata) }];
    case "tool_call":
      if (native) rendering.noteCall(part.callId, part.metadata);
      return [
        {
          type: "tool-call",
          toolCallId: rendering.noteId(part),
          toolName: part.toolName,
          input: inputOf(part.args),
          ...(native && providerOptions(part.metadata)),
        },
      ];
    // What a provider did itself, or alone understands, goes back to it and to no other.
    case "provider_tool_call":
    case "provider_tool_result":
    case "provider":
      return native ? [ownPart(part)] : [];
    // No provider wants its sources back.
    case "source":
    case "tool_result":
      return [];
  }
}

type OwnPart = ProviderToolCallPart | ProviderToolResultPart | ProviderPart;

function ownPart(part: OwnPart): AssistantContent[number] {
  switch (part.type) {
    case "provider_tool_call": {
      const { callId: toolCallId, toolName, args, metadata } = part;
      const input = inputOf(args);
      return { type: "tool-call", toolCallId, toolName, input, providerExecuted: true, ...providerOptions(metadata) };
    }
    case "provider_tool_result": {
      const { callId: toolCallId, toolName, value, isError, metadata } = part;
      const kind = isError ? "error-json" : typeof value === "string" ? "text" : "json";
      const output = { type: kind, value } as never; // the same JSON; only the readonly marks differ
      return { type: "tool-result", toolCallId, toolName, output, ...providerOptions(metadata) };
    }
    case "provider": {
      const { providerMetadata, ...data } = part.data;
      // Of a form that only its provider knows.
      return { ...data, ...(providerMetadata !== undefined && { providerOptions: providerMetadata }) } as never;
    }
  }
}

function toolPart(part: Part, rendering: Rendering): ToolContent {
  if (part.type !== "tool_result") return [];
  const { callId, toolName } = part;
  const output = toolOutput(part, rendering.form, rendering.bytesOf);
  const toolCallId = rendering.idOf(callId);
  return [{ type: "tool-result", toolCallId, toolName, output, ...providerOptions(rendering.ofCall(callId)) }];
}

/** Providers refuse arguments that are no object. A call that had such failed, and its result says why. */
function inputOf(args: Json): LanguageModelV3ToolCallPart["input"] {
  return typeof args === "object" && args !== null && !Array.isArray(args) ? args : {};
}

function providerOptions(metadata: ProviderMetadata | undefined): { providerOptions?: SharedV3ProviderOptions } {
  // The same JSON; only the readonly marks differ.
  return metadata === undefined ? {} : { providerOptions: metadata as unknown as SharedV3ProviderOptions };
}

/**
 * The session's tools, then the provider's. A name that both have is asked for as the provider defines it: the session's
 * tool then runs the calls the provider leaves to its client, such as those of a shell or an editor it knows.
 */
function toolsOf({ tools, direct, options }: ModelRequest, providerTools: ProviderTools) {
  // A completion beside the turn has no tools.
  if (direct !== undefined || providerTools.size === 0) return tools.map(functionTool);
  const own = new Set(tools.map(({ name }) => name));
  const isActive = (name: string) => options?.activeTools?.includes(name) ?? true;
  return [
    ...tools.map((spec) => providerTools.get(spec.name) ?? functionTool(spec)),
    ...[...providerTools.values()].filter(({ name }) => !own.has(name) && isActive(name)),
  ];
}

function functionTool({ name, description, inputSchema }: ToolSpec): LanguageModelV3FunctionTool {
  // A JSON Schema by contract of ToolSpec; checked where tools are registered.
  return { type: "function", name, description, inputSchema: inputSchema as unknown as JSONSchema7 };
}

/**
 * What of a conversation one route cannot be given back, because another minted it: signatures and encrypted reasoning
 * would be refused, or worse, believed. Counted by the route that minted it, so that it stays small in a long history.
 */
export class ReplayDrops {
  readonly #route: string;
  #counts: Map<string, { messages: number; parts: number }> | undefined;

  constructor(route: string) {
    this.#route = route;
  }

  get any(): boolean {
    return this.#counts !== undefined;
  }

  /** May everything in this answer go back? One that nobody stamped may; of a foreign one, what is lost is counted. */
  isNative({ route, parts }: Message): boolean {
    if (route === undefined || route === this.#route) return true;
    const lost = parts.filter(isReplay).length;
    if (lost > 0) this.#count(route, lost);
    return false;
  }

  list(): readonly ReplayDrop[] {
    return [...(this.#counts ?? [])].map(([route, counts]) => ({ route, ...counts }));
  }

  #count(route: string, parts: number): void {
    this.#counts ??= new Map();
    const before = this.#counts.get(route) ?? { messages: 0, parts: 0 };
    this.#counts.set(route, { messages: before.messages + 1, parts: before.parts + parts });
  }
}

/** Is there something in this part for its own provider only? */
function isReplay(part: Part): boolean {
  switch (part.type) {
    case "reasoning":
    case "provider_tool_call":
    case "provider_tool_result":
    case "provider":
      return true;
    case "tool_result":
    case "source":
      return false;
    case "text":
    case "attachment":
    case "tool_call":
      return part.metadata !== undefined;
  }
}
