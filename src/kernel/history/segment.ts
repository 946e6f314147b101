import type { Message } from "./messages.js";

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
  // One node has one name: "1.0", "01" and "" are none.
  return { segment: node.slice(0, dot), index: /^(0|[1-9]\d{0,14})$/.test(index) ? Number(index) : Number.NaN };
}
