import type { Clock } from "../../async/index.js";
import {
  type AppendNode,
  type AppendRequest,
  type AppendResult,
  addUsage,
  beginningBefore,
  type Head,
  type HistoryEnd,
  type HistoryWindow,
  isConversation,
  type Message,
  messageOfNode,
  miscounted,
  NO_USAGE,
  NOTHING_UNSTORED,
  nodeId,
  type Origin,
  type PendingInput,
  type RowWrite,
  type Segment,
  type SessionConfig,
  type StorableTurn,
  segmentId,
  TroupeError,
  type TurnResult,
  turnIdOf,
  type UnstoredMessage,
  windowPlace,
} from "../../kernel/index.js";
import type { StoreClient } from "../../store/index.js";
import { encode } from "../../wire/index.js";
import type { MessageRange } from "../calls/index.js";
import type { SessionHooks } from "../plugins/index.js";
import type { SessionCatalog, SessionProtocol } from "../protocol/index.js";
import type { KeepAppend, Receipts, StoredSession, TurnKey, TurnKeys } from "../stored/index.js";
import { COMPONENT, Component, haveAttachments } from "../stored/index.js";
import type { SessionInputs } from "./session-inputs.js";
import type { SessionLife } from "./session-life.js";

/**
 * The messages of a session's current frame. They are read from the end, as far back as something needs them: opening
 * and forking cost the same at any length, and so does a turn whose model is given only the last few.
 */
export class SessionHistory {
  readonly #store: Pick<StoreClient, "tail">;
  /** The end of it, as far as it was read. */
  #read: Message[] = [];
  /** The node before those; null when they are all. */
  #before: string | null;
  #known: number | undefined;
  /** Set while more of it is being read. */
  #reading: Promise<void> | undefined;
  /** Which frame's it is: what was being read when another one began is not part of it. */
  #frame = 0;
  #hasAttachments = false;
  /** Tokens the last model call read. */
  promptTokens: number | null = null;
  /** What the last stored turn's requests had beside the history: a fork takes it along, so that it begins as they did. */
  unstored = NOTHING_UNSTORED;
  /** The same of the session this one was forked from, until a turn of its own is stored. */
  inherited = NOTHING_UNSTORED;

  constructor(store: Pick<StoreClient, "tail">, head: Pick<Head, "leaf" | "messageCount"> | undefined) {
    this.#store = store;
    this.#before = head?.leaf ?? null;
    this.#known = this.#before === null ? 0 : head?.messageCount;
  }

  /** How many messages there are, when somebody has counted them. */
  get known(): number | undefined {
    return this.#known;
  }

  /** Something that was read or added has an attachment. */
  get hasAttachments(): boolean {
    return this.#hasAttachments;
  }

  /** How many messages there are. Reads them only when nobody has counted them yet. */
  async count(): Promise<number> {
    return this.#known ?? (await this.read()).length;
  }

  /** All of them. */
  async read(): Promise<readonly Message[]> {
    return (await this.from(0)).messages;
  }

  /** What the next turn needs: all of them or those of a window, unless its context transforms are to say what that is. */
  ahead(
    hooks: Pick<SessionHooks, "has">,
    { window }: Pick<SessionConfig, "window">,
  ): readonly Message[] | Promise<readonly Message[]> {
    if (hooks.has("context_transform")) return [];
    return window === null ? this.read() : this.#within(window);
  }

  async #within(window: HistoryWindow): Promise<readonly Message[]> {
    const place = await this.windowStart(window);
    const { start, messages } = await this.from(place);
    return place === start ? messages : messages.slice(place - start);
  }

  /** The first message of a window: of the block it begins with, the one the turn there began with. */
  async windowStart(window: HistoryWindow): Promise<number> {
    const place = windowPlace(this.#known ?? (await this.count()), window);
    for (let reach = place; reach > 0; reach = Math.max(0, reach - STRIDE)) {
      const { start, messages } = await this.from(reach);
      const beginning = beginningBefore(messages, place - start);
      if (beginning !== undefined) return start + beginning;
      if (start === 0) break;
    }
    return 0;
  }

  /** Another one in every frame. */
  get frame(): number {
    return this.#frame;
  }

  /** Those from a place on, and perhaps some before it that are here anyway. */
  async from(place: number): Promise<HistoryEnd> {
    while (this.#before !== null) {
      const start = this.#known === undefined ? undefined : this.#known - this.#read.length;
      // Who wants all of them is told when there are more, or fewer, than the head says.
      if (start !== undefined && start <= place && place > 0) return { start, messages: this.#read };
      const wanted = start === undefined || place <= 0 ? Number.POSITIVE_INFINITY : start - place;
      this.#reading ??= this.#readBack(this.#before, wanted).finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
    }
    return { start: 0, messages: this.#read };
  }

  /** Those between two places, negative ones counted from the end; with what is `behind` the history, as if it were part of it. */
  async slice(from: number, to?: number, behind: () => readonly Message[] = () => []): Promise<readonly Message[]> {
    for (;;) {
      const total = (await this.count()) + behind().length;
      const { messages, start } = await this.from(placeIn(total, from));
      // What was stored meanwhile is behind the others, and a frame that was left meanwhile is not asked for any more.
      const all = messages.length + start + behind().length;
      const first = placeIn(all, from);
      if (first < start) continue;
      return [...messages, ...behind()].slice(first - start, Math.max(first, placeIn(all, to ?? all)) - start);
    }
  }

  /** Reads `wanted` nodes more. Records are among them, so it may have to be asked again. */
  async #readBack(leaf: string, wanted: number): Promise<void> {
    const frame = this.#frame;
    const { messages, before } = await this.#store.tail(leaf, wanted);
    if (this.#frame !== frame) return;
    const older = messages.filter(isConversation);
    const read = older.concat(this.#read);
    if (before === null) {
      const { length } = read;
      if (this.#known !== undefined && this.#known !== length) throw miscounted(leaf, length, this.#known);
      this.#known = length;
    }
    this.#read = read;
    this.#before = before;
    this.#hasAttachments ||= haveAttachments(older);
  }

  /** These were stored behind the others. */
  grow(messages: readonly Message[]): void {
    const conversation = messages.filter(isConversation);
    this.#read.push(...conversation);
    if (this.#known !== undefined) this.#known += conversation.length;
    this.#hasAttachments ||= haveAttachments(conversation);
  }

  /** It goes on behind another node, with so many messages up to it. */
  goTo(leaf: string | null, count: number): void {
    this.restart([]);
    this.#before = leaf;
    this.#known = count;
    this.promptTokens = null;
  }

  /** Another frame begins, with these. */
  restart(messages: readonly Message[]): void {
    this.#frame++;
    this.inherited = this.unstored = NOTHING_UNSTORED;
    this.#read = [];
    this.#before = null;
    this.#known = 0;
    this.#hasAttachments = false;
    this.grow(messages);
  }
}

/** Messages read at once on the way back to the beginning of a turn. */
const STRIDE = 16;

function placeIn(count: number, place: number): number {
  return place < 0 ? Math.max(0, count + place) : Math.min(place, count);
}

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
  async openFrame({ frameId, reason, nodes, origin, task, keep = 0 }: NewFrame): Promise<void> {
    const { id, clock, stored, past, inputs, catalog } = this.#parts;
    const kept = keep === 0 ? NOTHING_KEPT : await this.#beginning(keep);
    // Whether it can be entered or not, it is not tried again.
    if (stored.head?.components[COMPONENT.entering] !== undefined) this.entering.change(null);
    this.checkNewFrame(frameId);
    if (task !== undefined && task.text.trim() !== "") inputs.add({ ...task, waitsFor: { kind: "next_turn" } });
    const frames = stored.head?.frames ?? [];
    await stored.write((previous, revision) => {
      const segment = segmentOf(id, revision, { parent: kept.leaf, nodes, origin, at: clock.wallNow() });
      const left = { frameId: stored.frameId, reason, leaf: previous?.leaf ?? null };
      return {
        operation: `frame:${frameId}`,
        head: { frameId, frames: [...frames, left], leaf: kept.leaf },
        messagesBefore: kept.messages.length,
        ...(nodes.length > 0 && { segment }),
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
