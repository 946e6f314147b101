import type { Json, JsonObject } from "../json.js";

/** `record` is not part of the conversation: something a plugin or protocol left in the history for itself. */
export type Role = "user" | "assistant" | "system" | "tool" | "record";

/** Opaque to Troupe: kept with the part and handed back to the provider that minted it. */
export type ProviderMetadata = { readonly [provider: string]: JsonObject };

export type Part =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "reasoning"; readonly text: string; readonly metadata?: ProviderMetadata }
  | {
      readonly type: "tool_call";
      readonly callId: string;
      readonly toolName: string;
      readonly args: Json;
      readonly metadata?: ProviderMetadata;
    }
  | {
      readonly type: "tool_result";
      readonly callId: string;
      readonly toolName: string;
      readonly status: "success" | "failure" | "cancelled";
      /** As the model sees it. */
      readonly text: string;
    }
  | {
      readonly type: "attachment";
      readonly mediaType: string;
      readonly name?: string;
      readonly source: AttachmentRef;
    };

/** Where an attachment's bytes are: in the store under their content's hash, or elsewhere. Never in the message. */
export type AttachmentRef =
  | { readonly kind: "stored"; readonly hash: string; readonly bytes: number }
  | { readonly kind: "url"; readonly url: string };

/** Who put a message into the history when it was not the model. */
export type Origin =
  /** `inputId`: it waited for the turn, or was put into it while it ran. */
  | { readonly kind: "turn_input"; readonly turnId: string; readonly inputId?: string }
  | { readonly kind: "plugin"; readonly pluginId: string }
  | { readonly kind: "protocol" }
  | { readonly kind: "host" }
  /** It came with the session, from the one that made it. */
  | { readonly kind: "creator"; readonly sessionId: string };

export interface Message {
  readonly id: string;
  readonly role: Role;
  readonly parts: readonly Part[];
  readonly origin?: Origin;
  /** Of an answer: the model that gave it. Its metadata goes back to no other. */
  readonly route?: string;
  readonly record?: { readonly type: string; readonly body: Json };
}

/** The text parts of a message, joined. */
export function textOf(message: Message): string {
  let text = "";
  for (const part of message.parts) if (part.type === "text") text += part.text;
  return text;
}
