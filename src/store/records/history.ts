import {
  type Head,
  historyDamaged,
  type Message,
  nodeId,
  type OutlineOf,
  parseNodeId,
  pathTo,
  type Segment,
  type SegmentOutline,
  type TreeNode,
  TroupeError,
  treeOf,
} from "../../kernel/index.js";
import type { ReaderAtOnce, ReaderFromAfar, StoreReader } from "./contract.js";
import { decodeSegment, outlineOfSegment, segmentOutline } from "./records.js";

type SegmentReader = Pick<ReaderAtOnce, "segment">;

/** Segments that are fetched at once, of one session. */
const RUN = 256;

/**
 * Where the segments of these paths can be read at once, as far back as `count` messages: the reader itself, or what was
 * fetched of them. A session's segments stand together, so a reader from afar gives them in runs.
 */
export function segmentsOf(
  reader: StoreReader,
  leaves: readonly (string | null)[],
  count = Number.POSITIVE_INFINITY,
): SegmentReader | Promise<SegmentReader> {
  // Who cannot be asked for runs answers at once; there is no third kind.
  return "segmentRun" in reader ? fetchPaths(reader as ReaderFromAfar, leaves, count) : (reader as ReaderAtOnce);
}

async function fetchPaths(
  reader: ReaderFromAfar,
  leaves: readonly (string | null)[],
  count: number,
): Promise<SegmentReader> {
  const known = new Map<string, Uint8Array>();
  const fetched: SegmentReader = { segment: (id) => known.get(id) };
  for (const leaf of leaves) {
    const passed = new Set<string>();
    for (let [node, wanted] = [leaf, count]; node !== null && wanted > 0; ) {
      const { segment, index } = parseNodeId(node);
      // A path that comes back to where it was is told by whoever follows it.
      if (passed.has(segment)) break;
      passed.add(segment);
      if (!known.has(segment)) {
        const run = await reader.segmentRun(segment, Math.min(RUN, wanted));
        for (const { id, bytes } of run) known.set(id, bytes);
      }
      if (!known.has(segment)) break;
      wanted -= index + 1;
      node = outlinesOf(fetched)(segment).parent;
    }
  }
  return fetched;
}

/**
 * The messages from the root to `leaf`, oldest first.
 *
 * @example
 * const messages = readHistory(reader, "chat-42@7.3");
 */
export function readHistory(reader: SegmentReader, leaf: string | null): Message[] {
  return readTail(reader, leaf, Number.POSITIVE_INFINITY).messages;
}

/** The end of a history, and where the rest of it ends: read that next to go further back. */
export interface HistoryTail {
  readonly messages: Message[];
  /** The node before the first of the messages; null when that is the first of all. */
  readonly before: string | null;
}

/**
 * The last `count` messages up to `leaf`, oldest first. Reads the segments they are in and no others.
 *
 * @example
 * const { messages, before } = readTail(reader, head.leaf, 20);
 * const older = readTail(reader, before, 20);
 */
export function readTail(reader: SegmentReader, leaf: string | null, count: number): HistoryTail {
  for (const reading = tailInSlices(reader, leaf, count); ; ) {
    const { done, value } = reading.next();
    if (done === true) return value;
  }
}

/**
 * The same without keeping the thread to itself: what is long is read in slices, with a pause after each. Whoever pauses
 * may throw there to end it.
 */
export async function readTailInSlices(
  reader: SegmentReader,
  leaf: string | null,
  count: number,
  pause: () => Promise<void>,
): Promise<HistoryTail> {
  for (const reading = tailInSlices(reader, leaf, count); ; await pause()) {
    const { done, value } = reading.next();
    if (done === true) return value;
  }
}

/** Messages that are decoded before somebody else has the thread: a few milliseconds' worth. */
const SLICE = 256;

function* tailInSlices(reader: SegmentReader, leaf: string | null, count: number): Generator<void, HistoryTail> {
  const newestFirst: (readonly Message[])[] = [];
  let [wanted, before, read] = [count, leaf, 0];
  // One walk for all of it: it sees when a path comes back to where it was.
  for (const { segment, index } of wanted > 0 ? segmentsTo(reader, leaf) : []) {
    const from = Math.max(0, index + 1 - wanted);
    newestFirst.push(segment.messages.slice(from, index + 1));
    before = from > 0 ? nodeId(segment.id, from - 1) : segment.parent;
    wanted -= index + 1;
    if (wanted <= 0) break;
    read += index + 1;
    if (read < SLICE) continue;
    read = 0;
    yield;
  }
  return { messages: newestFirst.reverse().flat(), before };
}

/** The segments from a node back to the root, each decoded when it is come to. */
function* segmentsTo(reader: SegmentReader, leaf: string | null) {
  let segment: Segment | undefined;
  const outlineOf = (id: string): SegmentOutline => {
    segment = checked(id, decodeSegment, bytesOf(reader, id));
    return outlineOfSegment(segment);
  };
  for (const { index } of pathTo(outlineOf, leaf)) yield { segment: segment as Segment, index };
}

/** A node of a session's tree, with its message. */
export interface MessageNode extends TreeNode {
  readonly message: Message;
}

/**
 * Everything a session leads to, for showing: its conversation (`active`), the frames it left, and the sessions forked
 * from it, each message once and behind its parent.
 *
 * @example
 * for (const { node, parent, active, message } of await readTree(reader, "chat-42")) draw(node, parent, active, message);
 */
export async function readTree(store: StoreReader, sessionId: string): Promise<MessageNode[]> {
  const head = await store.head(sessionId);
  if (head === undefined) return [];
  const leaves = (head.frames ?? []).map(({ leaf }) => leaf);
  for (const id of await store.children(sessionId)) {
    const child = id === sessionId ? undefined : await readableHead(store, id);
    if (child !== undefined) leaves.push(child.leaf);
  }
  const reader = await segmentsOf(store, [head.leaf, ...leaves]);
  const segments = new Map<string, Segment>();
  const outlineOf = (id: string): SegmentOutline => {
    const segment = segments.get(id) ?? checked(id, decodeSegment, bytesOf(reader, id));
    segments.set(id, segment);
    return outlineOfSegment(segment);
  };
  return treeOf(outlineOf, { active: head.leaf, others: leaves }).map((node) => {
    const { segment, index } = parseNodeId(node.node);
    return { ...node, message: segments.get(segment)?.messages[index] as Message };
  });
}

/** Another session's damage is not this one's. */
async function readableHead(reader: Pick<StoreReader, "head">, sessionId: string): Promise<Head | undefined> {
  try {
    return await reader.head(sessionId);
  } catch {
    return undefined;
  }
}

/** Finds outlines in a store, so that paths can be followed without reading messages. */
export function outlinesOf(reader: SegmentReader): OutlineOf {
  return (id) => checked(id, segmentOutline, bytesOf(reader, id));
}

/** A segment's bytes and its outline, from a reader that may answer later. */
export async function outlinedSegment(
  reader: Pick<StoreReader, "segment">,
  id: string,
): Promise<{ readonly bytes: Uint8Array; readonly outline: SegmentOutline }> {
  let bytes: Uint8Array | undefined;
  try {
    bytes = await reader.segment(id);
  } catch (error) {
    throw damagedBy(id, error);
  }
  const known: SegmentReader = { segment: () => bytes };
  return { bytes: bytesOf(known, id), outline: outlinesOf(known)(id) };
}

function bytesOf(reader: SegmentReader, id: string): Uint8Array {
  let bytes: Uint8Array | undefined;
  try {
    bytes = reader.segment(id);
  } catch (error) {
    throw damagedBy(id, error);
  }
  if (bytes === undefined) throw historyDamaged(id, "it is missing");
  return bytes;
}

function checked<T extends { readonly id: string }>(id: string, read: (bytes: Uint8Array) => T, bytes: Uint8Array): T {
  let found: T;
  try {
    found = read(bytes);
  } catch (error) {
    throw damagedBy(id, error);
  }
  if (found.id !== id) throw historyDamaged(id, "it holds another record");
  return found;
}

function damagedBy(id: string, error: unknown): TroupeError {
  // A record of a newer release is whole, only unknown here: say that, not "damaged".
  if (error instanceof TroupeError && error.code === "snapshot_version_unknown") return error;
  return historyDamaged(id, "it cannot be decoded", error);
}
