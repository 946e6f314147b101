import type { FrameRecord } from "./graph.js";
import type { Ledger } from "./ledger.js";
import type { Message } from "./messages.js";
import type { Usage } from "./usage.js";

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

/** The mutable part of a session: one small record, replaced by every commit. */
export interface Head {
  readonly sessionId: string;
  /** Grows by one with every commit; the compare-and-set guard. */
  readonly revision: number;
  /** The last node of the active path, or null while the history is empty. */
  readonly leaf: string | null;
  readonly turnIndex: number;
  /** Messages of the conversation up to the leaf, records not counted. Left out where nobody has counted them. */
  readonly messageCount?: number;
  /** Of the session's own model calls. */
  readonly usage: Usage;
  /** Component name (`plugin:<id>`, `tools`) → content hash. */
  readonly components: Readonly<Record<string, string>>;
  /** The operation that wrote this head: repeating it is answered, not repeated. */
  readonly operation: string;
  /** Whose call the last stored turn was: asked for again after a crash, it is not run again. */
  readonly lastCall?: string;
  readonly parent?: { readonly sessionId: string; readonly leaf: string | null };
  /** The frame the session is in, when it has left its first one, and those it left. */
  readonly frameId?: string;
  readonly frames?: readonly FrameRecord[];
  /** Everything spent, by source and model: own calls, direct completions, child sessions. Read it with `ledgerOf`. */
  readonly ledger?: Ledger;
}

/** For a head that is put over another history: whoever reads all of it counts it anew. */
export function uncounted({ messageCount: _, ...head }: Head): Head {
  return head;
}

/** One atomic write: everything a turn (or a fork) changed. */
export interface Commit {
  readonly head: Head;
  /** The revision the head must have before; 0 for a session that does not exist yet. */
  readonly expectedRevision: number;
  /** Encoded segment, or absent when no message was added. */
  readonly segment?: { readonly id: string; readonly bytes: Uint8Array };
  /** Only components whose content is not stored yet. */
  readonly components: readonly { readonly hash: string; readonly bytes: Uint8Array }[];
  /**
   * What the operation means, in words of its own. Repeated with another intent it is refused instead of answered.
   * Left to the caller, because positions, clocks and captured state differ between two attempts that mean the same.
   */
  readonly intent?: string;
  /** Deletes the session's journal in the same write: the turn it belongs to is stored now. */
  readonly clearsJournal?: boolean;
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
  // One node has one name: "1.0", "01" and "" are none.
  return { segment: node.slice(0, dot), index: /^(0|[1-9]\d{0,14})$/.test(index) ? Number(index) : Number.NaN };
}
