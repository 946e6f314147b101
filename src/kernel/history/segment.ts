import { TroupeError } from "../errors.js";
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
