import type { Json, JsonObject } from "../json.js";

/** Opaque to Troupe: kept with the part and handed back to the provider that minted it. */
export type ProviderMetadata = { readonly [provider: string]: JsonObject };

/** Names an attachment's bytes, which a message never holds: stored ones by the hash of their content, others by URL. */
export type AttachmentRef =
  | { readonly kind: "stored"; readonly hash: string; readonly bytes: number }
  | { readonly kind: "url"; readonly url: string };

export type TextPart = {
  readonly type: "text";
  readonly text: string;
  readonly metadata?: ProviderMetadata;
};

/** An image or another file: of the user's, of a tool's result, or made by the model. */
export type AttachmentPart = {
  readonly type: "attachment";
  readonly mediaType: string;
  readonly name?: string;
  readonly source: AttachmentRef;
  /** Of a file the model made. */
  readonly metadata?: ProviderMetadata;
};

/** A piece of a tool's result, as the history keeps it. */
export type ResultPart =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "json"; readonly value: Json }
  | AttachmentPart;

/** Where an answer has something from. No provider wants it back. */
export type SourcePart = {
  readonly type: "source";
  readonly id: string;
  readonly source:
    | { readonly kind: "url"; readonly url: string; readonly title?: string }
    | { readonly kind: "document"; readonly mediaType: string; readonly title: string; readonly name?: string };
  readonly metadata?: ProviderMetadata;
};

/** A call of a tool that the provider runs itself, such as a web search: it is told and sent back, and never made here. */
export type ProviderToolCallPart = {
  readonly type: "provider_tool_call";
  readonly callId: string;
  readonly toolName: string;
  readonly args: Json;
  readonly metadata?: ProviderMetadata;
};

export type ProviderToolResultPart = {
  readonly type: "provider_tool_result";
  readonly callId: string;
  readonly toolName: string;
  readonly value: Json;
  readonly isError?: true;
  readonly metadata?: ProviderMetadata;
};

/** Something of an answer that Troupe does not know. It goes back to its route as it came, and to no other. */
export type ProviderPart = {
  readonly type: "provider";
  readonly data: JsonObject;
};

/** What an answer has besides text, reasoning and calls: whole parts, each told once. */
export type AnswerPart = SourcePart | AttachmentPart | ProviderToolCallPart | ProviderToolResultPart | ProviderPart;

export type Part =
  | TextPart
  | { readonly type: "reasoning"; readonly text: string; readonly metadata?: ProviderMetadata }
  | {
      readonly type: "tool_call";
      /** Ours: no other call has it. */
      readonly callId: string;
      /** The provider's own, which goes back to it with the call and its result. Absent: it is `callId`. */
      readonly providerCallId?: string;
      readonly toolName: string;
      readonly args: Json;
      readonly metadata?: ProviderMetadata;
    }
  | {
      readonly type: "tool_result";
      readonly callId: string;
      readonly toolName: string;
      readonly status: "success" | "failure" | "cancelled";
      /** As the model sees it; of a result with `content`, the same in words, for whoever reads only text. */
      readonly text: string;
      /** The text is JSON: the model is given the value it says. */
      readonly json?: true;
      /** All of a result that is more than a text or a value. */
      readonly content?: readonly ResultPart[];
    }
  | AnswerPart;

/** The text parts, joined. */
export function textOf({ parts }: { readonly parts: readonly Part[] }): string {
  let text = "";
  for (const part of parts) if (part.type === "text") text += part.text;
  return text;
}

/** What somebody has read of these, without what only its provider understands: nothing when it is all blank. */
export function shownTexts(parts: readonly Part[]): TextPart[] {
  return parts.flatMap((part) =>
    part.type === "text" && part.text.trim() !== "" ? [{ type: "text", text: part.text }] : [],
  );
}

/** The attachments of these parts, those inside of tool results included. */
export function* attachmentsIn(parts: readonly (Part | ResultPart)[]): Iterable<AttachmentPart> {
  for (const part of parts) {
    if (part.type === "attachment") yield part;
    else if (part.type === "tool_result" && part.content !== undefined) yield* attachmentsIn(part.content);
  }
}
