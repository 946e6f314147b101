import type { LanguageModelV3ToolCall, LanguageModelV3ToolResult } from "@ai-sdk/provider";
import type { Json, JsonObject, ModelEvent, ProviderMetadata } from "../../kernel/index.js";

/** What an answer has besides text, reasoning and calls for us: streamed or whole, a provider says it in the same form. */

/** A part's metadata as the part of an answer keeps it. */
export function keptMetadata(given: object | undefined): { readonly metadata?: ProviderMetadata } {
  // The same JSON; only the readonly marks differ.
  return given ? { metadata: given as ProviderMetadata } : {};
}

/** A call the provider makes itself. */
export function providerCallEvent(call: LanguageModelV3ToolCall): ModelEvent {
  const { toolCallId: callId, toolName, input, providerMetadata } = call;
  return {
    type: "part",
    part: { type: "provider_tool_call", callId, toolName, args: argsOf(input), ...keptMetadata(providerMetadata) },
  };
}

/** Arguments the provider has already taken; what cannot be read of them is left out when they go back. */
function argsOf(input: string): Json {
  try {
    return input.trim() === "" ? {} : (JSON.parse(input) as Json);
  } catch {
    return {};
  }
}

/** Content that is whole when it comes. Nothing for what is no content. */
export function wholePartEvent(part: { readonly type: string }): ModelEvent | undefined {
  switch (part.type) {
    case "source":
      return sourceEvent(part as unknown as SourceGiven);
    case "file":
      return fileEvent(part as unknown as FileGiven);
    case "tool-result":
      return providerResultEvent(part as unknown as LanguageModelV3ToolResult);
    case "stream-start":
    case "tool-input-end":
    case "ping":
    case "raw":
      return undefined;
    default:
      return { type: "part", part: { type: "provider", data: plainOf(part) as JsonObject } };
  }
}

interface SourceGiven {
  readonly id: string;
  readonly sourceType: "url" | "document";
  readonly url?: string;
  readonly title?: string;
  readonly mediaType?: string;
  readonly filename?: string;
  readonly providerMetadata?: object;
}

function sourceEvent({ id, sourceType, url, title, mediaType, filename, providerMetadata }: SourceGiven): ModelEvent {
  const source =
    sourceType === "url"
      ? { kind: "url" as const, url: String(url), ...(title !== undefined && { title }) }
      : {
          kind: "document" as const,
          mediaType: String(mediaType),
          title: title ?? "",
          ...(filename !== undefined && { name: filename }),
        };
  return { type: "part", part: { type: "source", id: String(id), source, ...keptMetadata(providerMetadata) } };
}

interface FileGiven {
  readonly mediaType: string;
  /** Bytes or base64; version 4 says which, and has addresses too. */
  readonly data:
    | Uint8Array
    | string
    | { readonly type: "data"; readonly data: Uint8Array | string }
    | { readonly type: "url"; readonly url: URL | string };
  readonly providerMetadata?: object;
}

function fileEvent({ mediaType, data, providerMetadata }: FileGiven): ModelEvent {
  const file = { type: "file", mediaType, ...keptMetadata(providerMetadata) } as const;
  const tagged = typeof data === "object" && "type" in data ? data : ({ type: "data", data } as const);
  if (tagged.type === "url") return { ...file, data: new URL(tagged.url) };
  const bytes = typeof tagged.data === "string" ? new Uint8Array(Buffer.from(tagged.data, "base64")) : tagged.data;
  return { ...file, data: bytes };
}

/** Of a result that is still being made, the last one is told. */
function providerResultEvent(result: LanguageModelV3ToolResult): ModelEvent | undefined {
  const { toolCallId: callId, toolName, isError, preliminary, providerMetadata } = result;
  if (preliminary === true) return undefined;
  return {
    type: "part",
    part: {
      type: "provider_tool_result",
      callId,
      toolName,
      value: plainOf(result.result),
      ...(isError === true && { isError }),
      ...keptMetadata(providerMetadata),
    },
  };
}

/** The same as JSON: bytes as base64, addresses as text, which providers take as well. */
function plainOf(value: unknown): Json {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (value instanceof URL) return value.href;
  if (Array.isArray(value)) return value.map(plainOf);
  if (typeof value !== "object" || value === null) return (JSON.parse(JSON.stringify(value) ?? "null") as Json) ?? null;
  const known = Object.entries(value).filter(([, each]) => each !== undefined && typeof each !== "function");
  return Object.fromEntries(known.map(([key, each]) => [key, plainOf(each)]));
}
