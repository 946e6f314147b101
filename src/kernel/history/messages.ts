import { refusal } from "../errors.js";
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

/**
 * Something to append to a session's history: a message the model will read, or a record it will not, left by a plugin
 * or a protocol for itself.
 */
export type AppendNode =
  | {
      readonly kind: "message";
      readonly message: { readonly role: "user" | "system" | "assistant"; readonly text: string };
    }
  | { readonly kind: "protocol_event"; readonly event: Json }
  | { readonly kind: "plugin"; readonly pluginType: string; readonly body: Json };

export interface AppendRequest {
  readonly nodes: readonly AppendNode[];
  /**
   * Names the append: asked for again under the same id it answers as it did the first time and appends nothing. The
   * same id with other nodes is refused with `operation_key_conflict`. A session remembers the last 64.
   */
  readonly operationId?: string;
  /** Append only when this node is on the active path; otherwise nothing is written. */
  readonly requiresAncestorNodeId?: string;
}

export type AppendResult =
  | { readonly status: "appended"; readonly nodeIds: readonly string[]; readonly leafNodeId: string }
  | {
      readonly status: "stale_branch";
      readonly currentLeafNodeId: string | null;
      readonly requiredNodeId: string;
    };

/** A window of the conversation that was left: it stays readable under its last node. */
export interface FrameRecord {
  readonly frameId: string;
  readonly reason: string;
  readonly leaf: string | null;
}

/** The frame every session starts in. */
export const FIRST_FRAME = "main";

/** A node as it is kept in the history. `id` is the message's id. */
export function messageOfNode(node: AppendNode, id: string, origin: Origin): Message {
  switch (node.kind) {
    case "message": {
      const parts: readonly Part[] = [{ type: "text", text: node.message.text }];
      return { id, role: node.message.role, parts, origin };
    }
    case "protocol_event":
      return { id, role: "record", parts: [], origin, record: { type: "protocol_event", body: node.event } };
    case "plugin":
      return { id, role: "record", parts: [], origin, record: { type: node.pluginType, body: node.body } };
  }
}

/** Records are kept with the history, but are not part of the conversation. */
export function isConversation({ role }: Message): boolean {
  return role !== "record";
}

/** A request from outside, checked: `invalid_nodes` says what is wrong with it. */
export function checkAppend(request: unknown): AppendRequest {
  const { nodes, operationId, requiresAncestorNodeId } = (request ?? {}) as Partial<Record<string, unknown>>;
  checkNodes(nodes);
  if (operationId !== undefined && (typeof operationId !== "string" || operationId === ""))
    throw invalid("their operationId must be a text that is not empty");
  if (requiresAncestorNodeId !== undefined && typeof requiresAncestorNodeId !== "string")
    throw invalid("their requiresAncestorNodeId must be the id of a node");
  return request as AppendRequest;
}

const ROLES: readonly unknown[] = ["user", "system", "assistant"];

/** Nodes from outside, checked: `invalid_nodes` says which one cannot be appended and why. */
export function checkNodes(nodes: unknown): readonly AppendNode[] {
  if (!Array.isArray(nodes)) throw invalid("they must be a list");
  nodes.forEach((node: Partial<Record<string, unknown>> | null, index) => {
    const kind = node?.kind;
    if (kind === "message") {
      const message = node?.message as { role?: unknown; text?: unknown } | undefined;
      if (ROLES.includes(message?.role) && typeof message?.text === "string") return;
      throw invalid(`node ${index} needs a message with a role (user, system, assistant) and a text`);
    }
    if (kind === "protocol_event" && node?.event !== undefined) return;
    if (kind === "plugin" && typeof node?.pluginType === "string" && node.body !== undefined) return;
    throw invalid(`node ${index} must be a message, a protocol_event with its event, or a plugin node with its body`);
  });
  return nodes as readonly AppendNode[];
}

const invalid = refusal("invalid_nodes", "These nodes cannot be appended");
