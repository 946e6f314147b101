import {
  type AppendNode,
  type AppendRequest,
  type AppendResult,
  isConversation,
  type Message,
  messageOfNode,
  nodeId,
  type Origin,
  segmentId,
  TroupeError,
} from "../kernel/index.js";
import { COMPONENT } from "./components.js";
import type { MessageRange } from "./protocol.js";
import type { KeepAppend } from "./receipts.js";
import type { SessionHistory } from "./session-history.js";
import type { SessionInputs } from "./session-inputs.js";
import type { NewFrame, SessionServices } from "./session-parts.js";
import type { SessionProtocol } from "./session-protocol.js";
import type { StoredSession } from "./stored-session.js";

/** What of a session its graph grows by. */
export interface GrowingSession {
  readonly id: string;
  readonly services: SessionServices;
  readonly protocol: SessionProtocol;
  readonly stored: StoredSession;
  readonly past: SessionHistory;
  readonly inputs: SessionInputs;
  inputsChanged(inputs: SessionInputs["pending"]): void;
  checkNewFrame(frameId: string): void;
  invalidate(): void;
}

/**
 * Appends nodes behind the stored leaf. When a node is required to be on the path and is not, nothing is written.
 * `keep`: remembers the result in the same write.
 */
export async function appendNodes(
  session: GrowingSession,
  request: AppendRequest,
  origin: Origin,
  keep?: KeepAppend,
): Promise<AppendResult> {
  const { stored } = session;
  const { nodes, requiresAncestorNodeId: required } = request;
  const { leaf, frameId } = stored;
  if (required !== undefined && !(await session.services.store.onPath(leaf, required))) {
    return { status: "stale_branch", currentLeafNodeId: leaf, requiredNodeId: required };
  }
  await session.protocol.append(nodes);
  if (nodes.length === 0) return { status: "appended", nodeIds: [], leafNodeId: leaf ?? "" };
  if (session.past.known === undefined) await session.past.count();
  let result: AppendResult | undefined;
  await stored.write((previous, revision) => {
    if (stored.frameId !== frameId) return undefined;
    const segment = segmentOf(session.id, revision, { parent: previous?.leaf ?? null, nodes, origin });
    const nodeIds = segment.messages.map((message) => message.id);
    result = { status: "appended", nodeIds, leafNodeId: nodeIds.at(-1) as string };
    keep?.(result);
    return {
      operation: "append",
      segment,
      adopted: () => session.past.grow(segment.messages),
    };
  });
  // The frame was left meanwhile: another path, and another answer perhaps.
  return result ?? appendNodes(session, request, origin, keep);
}

/** Leaves the current frame for a new one that begins with these nodes. The old one stays readable. */
export async function openFrame(
  session: GrowingSession,
  { frameId, reason, nodes, origin, task }: NewFrame,
): Promise<void> {
  const { stored } = session;
  // Whether it can be entered or not, it is not tried again.
  if (stored.head?.components[COMPONENT.entering] !== undefined) stored.change(COMPONENT.entering, null);
  session.checkNewFrame(frameId);
  if (task !== undefined && task.text.trim() !== "") {
    session.inputs.add({ ...task, waitsFor: { kind: "next_turn" } });
    session.inputsChanged(session.inputs.pending);
  }
  const frames = stored.head?.frames ?? [];
  await stored.write((previous, revision) => {
    const segment = segmentOf(session.id, revision, { parent: null, nodes, origin });
    const left = { frameId: stored.frameId, reason, leaf: previous?.leaf ?? null };
    return {
      operation: `frame:${frameId}`,
      head: { frameId, frames: [...frames, left], leaf: null },
      ...(nodes.length > 0 && { segment }),
      adopted: () => session.past.restart(segment.messages),
    };
  });
  session.invalidate();
}

/** Messages of any frame as they are stored, the running turn's not among them. */
export async function storedMessages(
  { id, stored, past, services }: GrowingSession,
  { from = 0, to, frameId = stored.frameId, records = false }: MessageRange,
): Promise<readonly Message[]> {
  const { head } = stored;
  const current = frameId === stored.frameId;
  const leaf = current ? stored.leaf : head?.frames?.find((left) => left.frameId === frameId)?.leaf;
  if (leaf === undefined)
    throw new TroupeError("frame_unknown", `Session ${id} has no frame ${frameId}.`, { details: { frameId } });
  if (current && !records) return past.slice(from, to);
  const path = await services.store.history(leaf);
  return (records ? path : path.filter(isConversation)).slice(from, to);
}

function segmentOf(
  sessionId: string,
  revision: number,
  { parent, nodes, origin }: { parent: string | null; nodes: readonly AppendNode[]; origin: Origin },
): { readonly id: string; readonly parent: string | null; readonly messages: readonly Message[] } {
  const id = segmentId(sessionId, revision);
  return { id, parent, messages: nodes.map((node, index) => messageOfNode(node, nodeId(id, index), origin)) };
}
