import type { Clock } from "../../async/index.js";
import {
  type AppendNode,
  type AppendRequest,
  type AppendResult,
  addUsage,
  beginningBefore,
  isConversation,
  type Message,
  messageOfNode,
  NO_USAGE,
  NOTHING_UNSTORED,
  nodeId,
  type Origin,
  type PendingInput,
  type RowWrite,
  type Segment,
  type StorableTurn,
  segmentId,
  TroupeError,
  type TurnResult,
  turnIdOf,
  type UnstoredMessage,
} from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import { encode } from "../../wire/index.js";
import type { MessageRange } from "../calls/index.js";
import type { SessionCatalog, SessionProtocol } from "../protocol/index.js";
import type { KeepAppend, Receipts, StoredSession, TurnKey, TurnKeys } from "../stored/index.js";
import { COMPONENT, Component } from "../stored/index.js";
import type { SessionHistory } from "./session-history.js";
import type { SessionInputs } from "./session-inputs.js";
import type { SessionLife } from "./session-life.js";

interface GraphParts {
  readonly id: string;
  readonly clock: Clock;
  readonly store: Pick<StoreClient, "onPath" | "history" | "tail">;
  readonly stored: StoredSession;
  readonly past: SessionHistory;
  readonly protocol: Pick<SessionProtocol, "append">;
  readonly inputs: SessionInputs;
  readonly receipts: Receipts;
  readonly turnKeys: TurnKeys;
  readonly life: SessionLife;
  readonly catalog: Pick<SessionCatalog, "invalidate">;
}

/** What goes with a turn's commit beside the turn. */
interface TurnCommit {
  readonly name: TurnKey | undefined;
  /** Of the turns before it, in the frames it came from. */
  readonly before: readonly TurnResult[] | undefined;
  readonly call: string | undefined;
  readonly unstored: readonly UnstoredMessage[];
  /** The frame it leaves for: entered next, also when a crash comes between. */
  readonly entering: NewFrame | undefined;
  /** What else changes with it. */
  readonly rows: readonly RowWrite[] | undefined;
}

/** A frame to be entered. */
export interface NewFrame {
  readonly frameId: string;
  readonly reason: string;
  readonly nodes: readonly AppendNode[];
  readonly origin: Origin;
  /** What is to be done there: it waits for the next turn. */
  readonly task?: Pick<PendingInput, "id" | "text">;
  /** Messages of the frame that is left which it begins with, cut back to where a turn begins. Default 0. */
  readonly keep?: number;
  /** Messages of it that come again behind the nodes, as they were said. */
  readonly repeated?: readonly Message[];
}

/** The messages of a session and its frames, and every write that makes them more. */
export class SessionGraph {
  /** The frame the last turn left for, until the session is in it. */
  readonly entering = new Component(COMPONENT.entering);
  readonly #parts: GraphParts;

  constructor(parts: GraphParts) {
    this.#parts = parts;
  }

  /**
   * Appends nodes behind the stored leaf, under an operation id once. A running turn's own messages follow when it
   * commits. `keep` changes what else is to be in the write of nodes without such an id.
   */
  append(request: AppendRequest, origin: Origin, keep?: () => void): Promise<AppendResult> {
    const { operationId } = request;
    if (operationId === undefined) return this.#append(request, origin, keep);
    return this.#parts.receipts.append(operationId, request, (keep) => this.#append(request, origin, keep));
  }

  /** When a node is required to be on the path and is not, nothing is written. `keep`: remembers the result in the same write. */
  async #append(request: AppendRequest, origin: Origin, keep?: KeepAppend): Promise<AppendResult> {
    const { id, clock, stored, past, protocol, store } = this.#parts;
    const { nodes, requiresAncestorNodeId: required } = request;
    const { leaf, frameId } = stored;
    if (required !== undefined && !(await store.onPath(leaf, required))) {
      return { status: "stale_branch", currentLeafNodeId: leaf, requiredNodeId: required };
    }
    await protocol.append(nodes);
    if (nodes.length === 0) return { status: "appended", nodeIds: [], leafNodeId: leaf ?? "" };
    if (past.known === undefined) await past.count();
    let result: AppendResult | undefined;
    await stored.write((previous, revision) => {
      if (stored.frameId !== frameId) return undefined;
      const segment = segmentOf(id, revision, { parent: previous?.leaf ?? null, nodes, origin, at: clock.wallNow() });
      const nodeIds = segment.messages.map((message) => message.id);
      result = { status: "appended", nodeIds, leafNodeId: nodeIds.at(-1) as string };
      keep?.(result);
      return {
        operation: "append",
        segment,
        adopted: () => past.grow(segment.messages),
      };
    });
    // The frame was left meanwhile: another path, and another answer perhaps.
    return result ?? this.#append(request, origin, keep);
  }

  /** Throws `frame_exists` for the current frame and those that were left. */
  checkNewFrame(frameId: string): void {
    const { id, stored } = this.#parts;
    if (frameId !== stored.frameId && stored.head?.frames?.some((left) => left.frameId === frameId) !== true) return;
    throw new TroupeError("frame_exists", `Session ${id} already has a frame ${frameId}.`, {
      details: { sessionId: id, frameId },
    });
  }

  /** Stores a turn in one atomic write and adopts it; resolves when it is durable. */
  async commit(
    { summary, messages, spent, modelCallRecords }: StorableTurn,
    { name, before, call, unstored, entering, rows }: TurnCommit,
  ): Promise<number> {
    const { id, stored, past, inputs, turnKeys, life } = this.#parts;
    if (past.known === undefined) await past.count();
    const written = await stored.write((previous, revision) => {
      if (name !== undefined) {
        const result = { ...summary, sessionId: id, revision, modelCallRecords, ...(before && { before }) };
        turnKeys.keep(name, result);
      }
      inputs.settle();
      stored.usage.release();
      // Should a crash come between, the frame is entered all the same.
      if (entering !== undefined) this.entering.change(encode(entering));
      return {
        ...(call !== undefined && { exactOperation: `turn:${call}:${turnIdOf(summary.turnIndex)}` }),
        operation: `turn:${summary.turnId}`,
        endsTurn: true,
        ...(rows !== undefined && rows.length > 0 && { rows }),
        ...(messages.length > 0 && {
          segment: { id: segmentId(id, revision), parent: previous?.leaf ?? null, messages },
        }),
        head: {
          turnIndex: summary.turnIndex,
          usage: addUsage(previous?.usage ?? NO_USAGE, summary.usage),
          ...(call !== undefined && { lastCall: call }),
        },
        spent,
        adopted: () => {
          past.grow(messages);
          past.unstored = unstored;
          past.inherited = NOTHING_UNSTORED;
          // What was counted while this was being written goes with the next write: no other turn is to carry it.
          stored.usage.release();
          life.turnStored();
          inputs.turnStored();
        },
      };
    });
    return written.revision;
  }

  /** Leaves the current frame for a new one that begins with these nodes. The old one stays readable. */
  async openFrame({ frameId, reason, nodes, origin, task, keep = 0, repeated = [] }: NewFrame): Promise<void> {
    const { id, clock, stored, past, inputs, catalog } = this.#parts;
    const kept = keep === 0 ? NOTHING_KEPT : await this.#beginning(keep);
    // Whether it can be entered or not, it is not tried again.
    if (stored.head?.components[COMPONENT.entering] !== undefined) this.entering.change(null);
    this.checkNewFrame(frameId);
    if (task !== undefined && task.text.trim() !== "") inputs.add({ ...task, waitsFor: { kind: "next_turn" } });
    const frames = stored.head?.frames ?? [];
    await stored.write((previous, revision) => {
      const begun = segmentOf(id, revision, { parent: kept.leaf, nodes, origin, at: clock.wallNow() });
      const segment = { ...begun, messages: [...begun.messages, ...againIn(begun, repeated)] };
      const left = { frameId: stored.frameId, reason, leaf: previous?.leaf ?? null };
      return {
        operation: `frame:${frameId}`,
        head: { frameId, frames: [...frames, left], leaf: kept.leaf },
        messagesBefore: kept.messages.length,
        ...(segment.messages.length > 0 && { segment }),
        adopted: () => past.restart([...kept.messages, ...segment.messages]),
      };
    });
    catalog.invalidate();
  }

  /** The first messages of the frame, at most so many and whole turns of them, and the node they end with. */
  async #beginning(keep: number): Promise<{ readonly leaf: string | null; readonly messages: readonly Message[] }> {
    const { past, stored, store } = this.#parts;
    const messages = await past.read();
    const count = keep >= messages.length ? messages.length : (beginningBefore(messages, keep) ?? 0);
    let { leaf } = stored;
    // Records stand among the messages and are not counted: what is left is asked for until it is that many.
    for (let left = messages.length - count; left > 0 && leaf !== null; ) {
      const end = await store.tail(leaf, left);
      left -= end.messages.filter(isConversation).length;
      leaf = end.before;
    }
    return count === 0 ? NOTHING_KEPT : { leaf, messages: messages.slice(0, count) };
  }

  /** Messages by their places, the running turn's included; negative places count from the end. */
  messages(from = 0, to?: number): Promise<readonly Message[]> {
    const { past, life } = this.#parts;
    return past.slice(from, to, () => life.unstoredTurn?.state.messages ?? []);
  }

  /** Messages of any frame as they are stored, the running turn's not among them. */
  async stored(range: MessageRange): Promise<readonly Message[]> {
    const { id, stored, past, store } = this.#parts;
    const { from = 0, to, frameId = stored.frameId, records = false } = range;
    const current = frameId === stored.frameId;
    const leaf = current ? stored.leaf : stored.head?.frames?.find((left) => left.frameId === frameId)?.leaf;
    if (leaf === undefined)
      throw new TroupeError("frame_unknown", `Session ${id} has no frame ${frameId}.`, { details: { frameId } });
    if (current && !records) return past.slice(from, to);
    const path = await store.history(leaf);
    return (records ? path : path.filter(isConversation)).slice(from, to);
  }
}

const NOTHING_KEPT = { leaf: null, messages: [] } as const;

export function segmentOf(
  sessionId: string,
  revision: number,
  {
    parent,
    nodes,
    ...said
  }: { parent: string | null; nodes: readonly AppendNode[]; readonly origin: Origin; readonly at: number },
): Segment {
  const id = segmentId(sessionId, revision);
  return { id, parent, messages: nodes.map((node, index) => messageOfNode(node, nodeId(id, index), said)) };
}

/** Messages as they stand once more in a segment, behind those it has. */
function againIn({ id, messages }: Segment, repeated: readonly Message[]): readonly Message[] {
  return repeated.map((message, index) => ({ ...message, id: nodeId(id, messages.length + index) }));
}
