import type { Head } from "../../kernel/index.js";
import { type Message, parseNodeId, TroupeError, textOf, turnOfMessage } from "../../kernel/index.js";
import type { MessageNode, StoreClient } from "../../store/index.js";
import type { TreeMessage } from "../calls/index.js";
import type { Session, SessionSnapshot } from "../state/index.js";

/** How much of a message a tree shows. */
const PREVIEW = 120;
/** Messages read at once on the way back to the last one of a turn. */
const STRIDE = 32;

/**
 * The turn a node belongs to: whoever goes on from there counts on from it. Throws `node_unknown` for a node the
 * session does not lead to, and `node_unanswered` inside a step, where a tool call has no result yet: no model takes
 * such a conversation.
 */
async function turnAtNode(store: StoreClient, head: Head | undefined, node: string): Promise<number> {
  if (head === undefined || !(await leadsTo(store, head, node))) {
    const details = { sessionId: head?.sessionId, node };
    throw new TroupeError("node_unknown", `The session does not lead to a node ${node}.`, { details });
  }
  const { index } = parseNodeId(node);
  const { messages } = await store.tail(node, index + 1);
  if (hasUnanswered(messages))
    throw new TroupeError("node_unanswered", `At node ${node} a tool call has no result yet.`, { details: { node } });
  for (let at: string | null = node; at !== null; ) {
    const { messages: end, before }: { messages: readonly Message[]; before: string | null } = await store.tail(
      at,
      STRIDE,
    );
    for (const { id } of [...end].reverse()) {
      const turn = turnOfMessage(id);
      if (turn !== undefined) return turn;
    }
    at = before;
  }
  return 0;
}

/**
 * What a fork needs. State is captured now unless a turn is running: then the child gets the last commit's. Only of the
 * head is it kept, so that a fork `at` a node of the past gets it too.
 */
export async function snapshotOf(
  session: Session,
  { live, at }: { readonly live: boolean; readonly at?: string | undefined },
): Promise<SessionSnapshot> {
  if (live) await Promise.all([session.hooks.capture(), session.protocol.captureExecution()]);
  const { stored, services, id: sessionId } = session;
  const unsaved: Record<string, Uint8Array> = {};
  const components = { ...stored.head?.components };
  if (live) {
    for (const { name, bytes } of stored.changes()) {
      delete components[name];
      if (bytes !== null) unsaved[name] = bytes;
    }
  }
  return {
    parent: { sessionId, leaf: at ?? stored.leaf },
    messageCount: at === undefined ? stored.head?.messageCount : undefined,
    turnIndex: at === undefined ? stored.turnIndex : await turnAtNode(services.store, stored.head, at),
    components,
    unsaved,
  };
}

/** Most forks are of what the session leads to itself; only for others is every session looked at. */
async function leadsTo(store: StoreClient, head: Head, node: string): Promise<boolean> {
  for (const leaf of [head.leaf, ...(head.frames ?? []).map((frame) => frame.leaf)]) {
    if (leaf !== null && (await store.onPath(leaf, node))) return true;
  }
  return (await store.tree(head.sessionId)).some((known) => known.node === node);
}

function hasUnanswered(messages: readonly Message[]): boolean {
  const open = new Set<string>();
  for (const { parts } of messages) {
    for (const part of parts) {
      if (part.type === "tool_call") open.add(part.callId);
      if (part.type === "tool_result") open.delete(part.callId);
    }
  }
  return open.size > 0;
}

export function treeMessage({ node, parent, active, message }: MessageNode): TreeMessage {
  const text = textOf(message);
  return {
    node,
    parent,
    active,
    role: message.role,
    text: text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text,
  };
}
