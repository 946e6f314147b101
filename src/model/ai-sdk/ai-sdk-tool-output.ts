import type { LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import { type AttachmentPart, type Json, type Part, type ResultPart, wordsOfPart } from "../../kernel/index.js";

/** How one model is asked: the version of its interface, and which files it takes from a tool. */
export interface PromptForm {
  /** `v2`, `v3` or `v4`. */
  readonly version: string;
  /** Media types: whole (`application/pdf`) or a kind (`image/*`). */
  readonly toolMedia: readonly string[];
}

/** The bytes of an attachment, or where they are. */
export type BytesOf = (part: AttachmentPart) => Uint8Array | URL;

type ToolResult = Extract<Part, { type: "tool_result" }>;
type ContentOutput = Extract<LanguageModelV3ToolResultOutput, { type: "content" }>;
type ContentItem = ContentOutput["value"][number];

const BEDROCK_MEDIA: readonly string[] = [
  "image/jpeg",
  "image/png",
  "image/gif",
  "image/webp",
  "application/pdf",
  "text/csv",
  "text/html",
  "text/plain",
  "text/markdown",
];

/**
 * Files that providers take inside of a tool's result, by the provider's name. The interface has no word for it, and what
 * a provider package does not take it throws on, leaves out, or sends as base64 in words, which costs as many tokens as
 * the file has bytes. Of a provider that is not here the model reads that there is a file.
 */
const TOOL_MEDIA: readonly (readonly [provider: RegExp, media: readonly string[]])[] = [
  [/anthropic/, ["image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"]],
  [/\.responses$/, ["image/*", "application/pdf"]],
  [/^google\.|vertex/, ["image/*", "audio/*", "video/*", "application/pdf", "text/plain"]],
  [/^amazon-bedrock/, BEDROCK_MEDIA],
];

export function toolMediaOf(provider: string): readonly string[] {
  return TOOL_MEDIA.find(([pattern]) => pattern.test(provider))?.[1] ?? [];
}

/** A result as the model takes it: text, a value, or parts. */
export function toolOutput(part: ToolResult, form: PromptForm, bytesOf: BytesOf): LanguageModelV3ToolResultOutput {
  const { status, text, json, content } = part;
  if (status !== "success") return { type: "error-text", value: text };
  if (content !== undefined && form.toolMedia.length > 0)
    // Version 2 and 4 name the pieces otherwise; each model is given its own.
    return { type: "content", value: content.map((piece) => contentItem(piece, form, bytesOf)) as ContentItem[] };
  // Of parts for a model that takes none, the text says all of them in words.
  if (content !== undefined || json !== true) return { type: "text", value: text };
  return { type: "json", value: parsedValue(part) as never }; // the same JSON; only the readonly marks differ
}

/** Messages are the same objects in every call, so a result is parsed once while its session is in memory. */
const VALUES = new WeakMap<ToolResult, { readonly value: Json }>();

function parsedValue(part: ToolResult): Json {
  let known = VALUES.get(part);
  if (known === undefined) {
    known = { value: JSON.parse(part.text) as Json };
    VALUES.set(part, known);
  }
  return known.value;
}

function contentItem(part: ResultPart, { version, toolMedia }: PromptForm, bytesOf: BytesOf): unknown {
  if (part.type !== "attachment") return { type: "text", text: wordsOfPart(part) };
  const { mediaType, name } = part;
  const isUrl = part.source.kind === "url";
  if (!takes(toolMedia, mediaType) || (isUrl && version === "v2"))
    return { type: "text", text: `${wordsOfPart(part)} This model takes no such file from a tool.` };
  const data = bytesOf(part);
  const named = name !== undefined && { filename: name };
  switch (version) {
    case "v2":
      return { type: "media", mediaType, data: base64(data as Uint8Array) }; // addresses were said in words above
    case "v4":
      return { type: "file", mediaType, data: taggedData(data), ...named };
    default: {
      const isImage = mediaType.startsWith("image/");
      if (data instanceof URL)
        return isImage ? { type: "image-url", url: data.href } : { type: "file-url", url: data.href, mediaType };
      const item = { mediaType, data: base64(data) };
      return isImage ? { type: "image-data", ...item } : { type: "file-data", ...item, ...named };
    }
  }
}

/** How version 4 says what the data of a file are. */
export function taggedData(data: Uint8Array | URL): object {
  return data instanceof URL ? { type: "url", url: data } : { type: "data", data };
}

function takes(media: readonly string[], mediaType: string): boolean {
  return media.some((each) => (each.endsWith("/*") ? mediaType.startsWith(each.slice(0, -1)) : each === mediaType));
}

function base64({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString("base64");
}
