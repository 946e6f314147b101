import { refusal, TroupeError } from "../errors.js";
import { isRecord, type Json, wellFormed } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import type { Part } from "./parts.js";

/** `record` is not part of the conversation: something a plugin or protocol left in the history for itself. */
export type Role = "user" | "assistant" | "system" | "tool" | "record";

/** The source of a message that no model wrote. */
export type Origin =
  /** `inputId`: it waited for the turn, or was put into it while it ran. */
  | { readonly kind: "turn_input"; readonly turnId: string; readonly inputId?: string }
  | { readonly kind: "plugin"; readonly pluginId: string }
  | { readonly kind: "protocol" }
  | { readonly kind: "host" }
  /** The session with this id created this one and gave it the message to begin with. */
  | { readonly kind: "creator"; readonly sessionId: string };

export interface Message {
  readonly id: string;
  readonly role: Role;
  readonly parts: readonly Part[];
  readonly origin?: Origin;
  /** When it was said, in milliseconds since 1970. Messages that older releases stored have none. */
  readonly at?: number;
  /** Of an answer: the model that gave it. Its metadata goes back to no other. */
  readonly route?: string;
  /** Of an answer: its turn was stopped in the middle of it. What was shown by then is the whole message. */
  readonly interrupted?: true;
  readonly record?: { readonly type: string; readonly body: Json };
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
export function messageOfNode(
  given: AppendNode,
  id: string,
  said: { readonly origin: Origin; readonly at: number },
): Message {
  const node = wellFormed(given);
  switch (node.kind) {
    case "message": {
      const parts: readonly Part[] = [{ type: "text", text: node.message.text }];
      return { id, role: node.message.role, parts, ...said };
    }
    case "protocol_event":
      return { id, role: "record", parts: [], ...said, record: { type: "protocol_event", body: node.event } };
    case "plugin":
      return { id, role: "record", parts: [], ...said, record: { type: node.pluginType, body: node.body } };
  }
}

/** What a model reads behind an answer that was cut off: without it, it takes the text for all it wanted to say. */
const CUT_OFF = "[This answer was cut off here: it was stopped before it was complete.]";

/** Messages as a model reads them: of an answer that was cut off it is told so, in words every provider takes back. */
export function toldOfCuts(messages: readonly Message[]): readonly Message[] {
  if (!messages.some(({ interrupted }) => interrupted)) return messages;
  return messages.map((message) =>
    message.interrupted ? { ...message, parts: [...message.parts, { type: "text", text: `\n\n${CUT_OFF}` }] } : message,
  );
}

/** Records are kept with the history, but are not part of the conversation. */
export function isConversation({ role }: Message): boolean {
  return role !== "record";
}

const APPEND_FIELDS: FieldsOf<AppendRequest> = { nodes: true, operationId: true, requiresAncestorNodeId: true };

/** A request from outside, checked: `invalid_nodes` says what is wrong with it. */
export function checkAppend(request: unknown): AppendRequest {
  if (!isRecord(request)) throw invalid("what is appended is an object { nodes }");
  const unknown = unknownField(request, APPEND_FIELDS, "it", "field");
  if (unknown !== undefined) throw invalid(unknown);
  const { nodes, operationId, requiresAncestorNodeId } = request;
  checkNodes(nodes);
  if (operationId !== undefined && (typeof operationId !== "string" || operationId === ""))
    throw invalid("their operationId must be a text that is not empty");
  if (requiresAncestorNodeId !== undefined && typeof requiresAncestorNodeId !== "string")
    throw invalid("their requiresAncestorNodeId must be the id of a node");
  return request as unknown as AppendRequest;
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

/**
 * History is a graph of segments. A segment holds the messages one commit added and is never changed;
 * a node is one message of it, named `<segment id>.<index>`. A session is a head over a node, so a fork is another
 * head over the same node and writes no history.
 */
export interface Segment {
  readonly id: string;
  /** The node this segment continues, or null at the root. */
  readonly parent: string | null;
  readonly messages: readonly Message[];
}

/** A segment without its messages. */
export interface SegmentOutline {
  readonly id: string;
  readonly parent: string | null;
  readonly count: number;
}

export function segmentId(sessionId: string, revision: number): string {
  return `${sessionId}@${revision}`;
}

export function nodeId(segment: string, index: number): string {
  return `${segment}.${index}`;
}

/** Splits a node id into its segment and its index (NaN when it has none); a session id may itself contain dots. */
export function parseNodeId(node: string): { segment: string; index: number } {
  const dot = node.lastIndexOf(".");
  const index = node.slice(dot + 1);
  // Two spellings of one index would be two names of one node, so "01", "1.0" and "" are refused.
  return { segment: node.slice(0, dot), index: /^(0|[1-9]\d{0,14})$/.test(index) ? Number(index) : Number.NaN };
}

/** Finds a segment of a history. Throws `history_damaged` when it is not there or cannot be read. */
export type OutlineOf = (segmentId: string) => SegmentOutline;

/** A segment on a path, and the index of its last message that is on it. */
export interface PathStep {
  readonly outline: SegmentOutline;
  readonly index: number;
}

/**
 * The segments from a node back to the root. Where a segment continues a node in the middle of another one (a fork),
 * what came after that node belongs to the other branch and is not on the path.
 *
 * Only damaged records form a ring or name a message their segment does not have: both throw `history_damaged` instead
 * of never ending or leaving something out.
 */
export function* pathTo(outlineOf: OutlineOf, leaf: string | null): Generator<PathStep> {
  const seen = new Set<string>();
  for (let node = leaf; node !== null; ) {
    const { segment, index } = parseNodeId(node);
    if (seen.has(segment)) throw historyDamaged(segment, "it is its own ancestor");
    seen.add(segment);
    const outline = outlineOf(segment);
    if (!(index < outline.count)) {
      throw historyDamaged(segment, `it has ${outline.count} messages, but node ${node} is expected in it`);
    }
    yield { outline, index };
    node = outline.parent;
  }
}

/** Is a node on the way from the root to `leaf`? */
export function isOnPath(outlineOf: OutlineOf, leaf: string | null, node: string): boolean {
  const wanted = parseNodeId(node);
  for (const { outline, index } of pathTo(outlineOf, leaf)) {
    if (outline.id === wanted.segment) return wanted.index <= index;
  }
  return false;
}

/** A node of the tree that several branches form. */
export interface TreeNode {
  readonly node: string;
  readonly parent: string | null;
  /** Is it on the way to the active leaf? */
  readonly active: boolean;
}

/**
 * The tree of these branches: each node once, every node behind its parent. What no leaf leads to is not in it.
 *
 * @example
 * treeOf(outlineOf, { active: "a@2.0", others: ["b@1.0"] });
 */
export function treeOf(
  outlineOf: OutlineOf,
  { active, others }: { readonly active: string | null; readonly others: readonly (string | null)[] },
): TreeNode[] {
  const nodes = new Map<string, TreeNode>();
  for (const leaf of [active, ...others]) {
    const fresh: TreeNode[] = [];
    for (const { outline, index } of pathTo(outlineOf, leaf)) {
      for (let i = index; i >= 0; i--) {
        const node = nodeId(outline.id, i);
        const parent = i > 0 ? nodeId(outline.id, i - 1) : outline.parent;
        if (!nodes.has(node)) fresh.push({ node, parent, active: leaf === active });
      }
    }
    for (const each of fresh.reverse()) nodes.set(each.node, each);
  }
  return [...nodes.values()];
}

export function historyDamaged(segment: string, why: string, cause?: unknown): TroupeError {
  return new TroupeError("history_damaged", `History segment ${segment} cannot be used: ${why}.`, {
    details: { segment },
    cause,
  });
}

/** A head says that another number of messages leads to its leaf. */
export function miscounted(leaf: string | null, count: number, counted: number): TroupeError {
  return historyDamaged(leaf ?? "none", `${count} messages lead there, and not ${counted}`);
}
