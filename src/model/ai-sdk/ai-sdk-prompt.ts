import type {
  JSONSchema7,
  LanguageModelV3CallOptions,
  LanguageModelV3FunctionTool,
  LanguageModelV3Message,
  LanguageModelV3ToolCallPart,
  SharedV3ProviderOptions,
} from "@ai-sdk/provider";
import {
  type DirectOutput,
  type Json,
  type Message,
  type ModelRequest,
  type Part,
  type ProviderMetadata,
  type ReplayDrop,
  type ToolSpec,
  TroupeError,
  textOf,
} from "../../kernel/index.js";
import type { ReportReplayDrops } from "../boundary/index.js";

type AssistantContent = Extract<LanguageModelV3Message, { role: "assistant" }>["content"];
type UserContent = Extract<LanguageModelV3Message, { role: "user" }>["content"];
type ToolContent = Extract<LanguageModelV3Message, { role: "tool" }>["content"];

interface CallFacts {
  /** The model that is asked. */
  readonly route: string;
  readonly abortSignal: AbortSignal;
  readonly onReplayDropped?: ReportReplayDrops | undefined;
}

/** A request as an AI SDK model takes it. Versions 2, 3 and 4 agree on everything used here. */
export function callOptions(
  request: ModelRequest,
  { route, abortSignal, onReplayDropped }: CallFacts,
): LanguageModelV3CallOptions {
  const prompt: LanguageModelV3Message[] = [];
  if (request.system !== "") prompt.push({ role: "system", content: request.system });
  const rendering: Rendering = { drops: new ReplayDrops(route), attachments: request.attachments ?? NO_ATTACHMENTS };
  for (const message of request.history) add(prompt, message, rendering);
  for (const message of request.turn) add(prompt, message, rendering);
  if (rendering.drops.any) onReplayDropped?.(rendering.drops.list());
  const tools = request.tools.map(functionTool);
  return {
    prompt,
    abortSignal,
    ...(tools.length > 0 && { tools, toolChoice: { type: "auto" } }),
    ...responseFormat(request.direct?.output),
  };
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

interface Rendering {
  readonly drops: ReplayDrops;
  readonly attachments: ReadonlyMap<string, Uint8Array>;
}

/** Messages that say nothing are left out: several providers refuse empty content. */
function add(prompt: LanguageModelV3Message[], message: Message, { drops, attachments }: Rendering): void {
  switch (message.role) {
    case "system": {
      const content = textOf(message);
      if (content !== "") prompt.push({ role: "system", content });
      return;
    }
    case "user": {
      const content = message.parts.flatMap((part) => userPart(part, attachments));
      if (content.length > 0) prompt.push({ role: "user", content });
      return;
    }
    case "assistant": {
      const native = drops.isNative(message);
      const content = message.parts.flatMap((part) => assistantPart(part, native));
      if (content.length > 0) prompt.push({ role: "assistant", content });
      return;
    }
    case "tool": {
      const content = message.parts.flatMap(toolPart);
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

function userPart(part: Part, attachments: Rendering["attachments"]): UserContent {
  if (part.type === "text") return part.text === "" ? [] : [{ type: "text", text: part.text }];
  if (part.type !== "attachment") return [];
  const { mediaType, name, source } = part;
  const data = source.kind === "url" ? new URL(source.url) : attachments.get(source.hash);
  if (data === undefined)
    throw new TroupeError("attachment_missing", "A stored attachment of this conversation could not be read.");
  return [{ type: "file", mediaType, data, ...(name !== undefined && { filename: name }) }];
}

function assistantPart(part: Part, native: boolean): AssistantContent {
  switch (part.type) {
    case "text":
      return part.text === "" ? [] : [{ type: "text", text: part.text }];
    case "attachment":
      return [];
    case "reasoning":
      if (!native) return [];
      // Text may be empty: redacted reasoning is all metadata.
      return [{ type: "reasoning", text: part.text, ...providerOptions(part.metadata) }];
    case "tool_call":
      return [
        {
          type: "tool-call",
          toolCallId: part.callId,
          toolName: part.toolName,
          input: inputOf(part.args),
          ...(native && providerOptions(part.metadata)),
        },
      ];
    case "tool_result":
      return [];
  }
}

function toolPart(part: Part): ToolContent {
  if (part.type !== "tool_result") return [];
  const { callId, toolName, status, text } = part;
  const output = { type: status === "success" ? ("text" as const) : ("error-text" as const), value: text };
  return [{ type: "tool-result", toolCallId: callId, toolName, output }];
}

/** Providers refuse arguments that are no object. A call that had such failed, and its result says why. */
function inputOf(args: Json): LanguageModelV3ToolCallPart["input"] {
  return typeof args === "object" && args !== null && !Array.isArray(args) ? args : {};
}

function providerOptions(metadata: ProviderMetadata | undefined): { providerOptions?: SharedV3ProviderOptions } {
  // The same JSON; only the readonly marks differ.
  return metadata === undefined ? {} : { providerOptions: metadata as unknown as SharedV3ProviderOptions };
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
  return part.type === "reasoning" || (part.type === "tool_call" && part.metadata !== undefined);
}
