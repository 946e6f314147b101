import {
  type AttachmentPart,
  type AttachmentPolicy,
  type AttachmentRef,
  admitAttachment,
  isMediaType,
  type ResultPart,
} from "../history/index.js";
import { isRecord, type Json } from "../json.js";
import { wordsOf } from "./words.js";

/**
 * A piece of what a tool answers. The bytes of a file are given `inline`; the session keeps them once, by the hash of
 * their content, and whoever sees the result afterwards (hooks, activities, the history) sees them as `stored`.
 */
export type ToolContentPart =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "json"; readonly value: Json }
  | (Omit<AttachmentPart, "source" | "metadata"> & {
      readonly source: AttachmentRef | { readonly kind: "inline"; readonly bytes: Uint8Array };
    });

/** Parts one result may have. */
export const MAX_CONTENT_PARTS = 64;

/** Why something from outside is no content of a result; undefined when it is. */
export function problemWithContent(content: unknown): string | undefined {
  if (!Array.isArray(content)) return "its content must be a list of parts";
  if (content.length === 0) return "its content must have at least one part";
  if (content.length > MAX_CONTENT_PARTS)
    return `its content has ${content.length} parts; ${MAX_CONTENT_PARTS} are allowed`;
  for (let at = 0; at < content.length; at++)
    if (!isContentPart(content[at]))
      return `part ${at} must be { type: "text", text }, { type: "json", value } or { type: "attachment", mediaType, source }`;
  return undefined;
}

function isContentPart(part: unknown): part is ToolContentPart {
  if (!isRecord(part)) return false;
  switch (part.type) {
    case "text":
      return typeof part.text === "string";
    case "json":
      return part.value !== undefined;
    case "attachment":
      return isMediaType(part.mediaType) && isName(part.name) && isSource(part.source);
    default:
      return false;
  }
}

function isName(name: unknown): boolean {
  return name === undefined || (typeof name === "string" && name !== "" && name.length <= 255);
}

function isSource(source: unknown): boolean {
  if (!isRecord(source)) return false;
  switch (source.kind) {
    case "inline":
      return source.bytes instanceof Uint8Array && source.bytes.byteLength > 0;
    case "stored":
      return typeof source.hash === "string";
    case "url":
      return typeof source.url === "string";
    default:
      return false;
  }
}

type Attached = Extract<ToolContentPart, { type: "attachment" }>;

/** An attachment of a result as the host's policy lets it in, or throws what `refuse` makes of the reason. */
export function admitContent(
  part: Attached,
  policy: AttachmentPolicy,
  refuse: Parameters<typeof admitAttachment>[2],
): Attached {
  const { mediaType } = part;
  const admitted = admitAttachment({ mediaType, ...part.source }, policy, refuse);
  return admitted.kind === "url" ? { ...part, source: { kind: "url", url: admitted.url } } : part;
}

/** The content as a message keeps it: these fields and no others. Bytes that nobody stored are said in words. */
export function storedContent(content: readonly ToolContentPart[]): readonly ResultPart[] {
  return content.map(storedPart);
}

function storedPart(part: ToolContentPart): ResultPart {
  switch (part.type) {
    case "text":
      return { type: "text", text: part.text };
    case "json":
      return { type: "json", value: part.value };
    case "attachment": {
      const { mediaType, name, source } = part;
      if (source.kind === "inline") return { type: "text", text: wordsOfPart(part) };
      return { type: "attachment", mediaType, ...(name !== undefined && { name }), source };
    }
  }
}

/** The content in words, part by part: for whoever reads only text. */
export function wordsOfContent(content: readonly (ToolContentPart | ResultPart)[]): string {
  return content.map(wordsOfPart).join("\n");
}

/**
 * A part of a result in words.
 *
 * @example
 * wordsOfPart({ type: "attachment", mediaType: "image/png", name: "map.png", source: { kind: "stored", hash, bytes: 512 } });
 * // "[image/png map.png, 512 bytes]"
 */
export function wordsOfPart(part: ToolContentPart | ResultPart): string {
  switch (part.type) {
    case "text":
      return part.text;
    case "json":
      return wordsOf(part.value);
    case "attachment": {
      const { mediaType, name, source } = part;
      return `[${[mediaType, ...(name === undefined ? [] : [name])].join(" ")}, ${placeOf(source)}]`;
    }
  }
}

function placeOf(source: Attached["source"]): string {
  switch (source.kind) {
    case "inline":
      return `${source.bytes.byteLength} bytes`;
    case "stored":
      return `${source.bytes} bytes`;
    case "url":
      return source.url;
  }
}
