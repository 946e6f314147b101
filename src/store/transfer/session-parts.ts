import {
  componentMissing,
  type Head,
  isOfJournal,
  isOfMonitor,
  type OutlineOf,
  parseNodeId,
  pathTo,
  type Row,
  rowNameOf,
  rowRange,
  type Segment,
  type SegmentOutline,
  sessionUnknown,
} from "../../kernel/index.js";
import { decodeSegment, outlinedSegment, type StoreBackend, type StoreReader } from "../records/index.js";

/** What of a session can change while the rest of it is being read. */
export interface SessionToExport {
  readonly head: Head;
  readonly rows: readonly Row[];
}

/** What a session consists of beside that, one thing after the other. */
type SessionPart =
  | { readonly kind: "segment"; readonly segment: Segment }
  | { readonly kind: "component"; readonly hash: string; readonly bytes: Uint8Array };

/** Row keys that are asked for at once. */
const PAGE = 250;

/** A stored session's head and rows. Throws `session_unknown`. */
export async function readSession(
  backend: Pick<StoreBackend, "head" | "keys" | "row">,
  sessionId: string,
): Promise<SessionToExport> {
  const head = await backend.head(sessionId);
  if (head === undefined) throw sessionUnknown(sessionId, "in this store");
  const rows: Row[] = [];
  const { start } = rowRange(sessionId);
  for (let after = start; ; ) {
    const keys = await backend.keys("rows", after, PAGE);
    const own = keys.filter((key) => key.startsWith(start));
    for (const key of own) {
      const name = rowNameOf(key);
      // What stands for something in the journal stays with it: a copy of the session has no turn that is not over.
      const row = isOfJournal(name) || isOfMonitor(name) ? undefined : await backend.row(name);
      if (row !== undefined) rows.push(row);
    }
    if (own.length < PAGE) return { head, rows };
    after = own.at(-1) as string;
  }
}

/**
 * The other parts of a stored session. Throws what reading a damaged session throws: an export is whole or there is none.
 */
export async function* partsOf(
  reader: Pick<StoreReader, "segment" | "component">,
  { head, rows }: SessionToExport,
): AsyncGenerator<SessionPart> {
  const { sessionId } = head;
  const needed = new Set(Object.values(head.components));
  // What these name may name others: attachments of inputs that wait, of what a row keeps elsewhere.
  const followed = new Set([...needed, ...rows.flatMap(({ value }) => hashesIn(value))]);
  const hashes = new Set(followed);
  for (const id of await fetchSegmentIds(reader, head)) {
    const { bytes } = await outlinedSegment(reader, id);
    for (const hash of hashesIn(bytes)) hashes.add(hash);
    yield { kind: "segment", segment: decodeSegment(bytes) };
  }
  for (const hash of hashes) {
    const bytes = await reader.component(hash);
    if (bytes !== undefined) {
      // A set goes on to what is added while it is gone through.
      if (followed.has(hash)) for (const inner of hashesIn(bytes)) hashes.add(inner);
      yield { kind: "component", hash, bytes };
    } else if (needed.has(hash)) {
      throw componentMissing(`Component ${hash} of session ${sessionId}`, { details: { sessionId, hash } });
    }
  }
}

/** Every segment a session leads to, oldest first on each path. */
export function segmentIdsOf(outlineOf: OutlineOf, head: Head): Set<string> {
  const found = new Set<string>();
  for (const end of leavesOf(head)) {
    const path = [...pathTo(outlineOf, end)].map(({ outline }) => outline.id);
    for (const id of path.reverse()) found.add(id);
  }
  return found;
}

function leavesOf({ leaf, frames = [] }: Head): (string | null)[] {
  return [...frames.map((left) => left.leaf), leaf];
}

/** The same from a reader that may answer later. */
async function fetchSegmentIds(reader: Pick<StoreReader, "segment">, head: Head): Promise<Set<string>> {
  const outlines = new Map<string, SegmentOutline>();
  for (const leaf of leavesOf(head)) {
    for (let node = leaf; node !== null; ) {
      const { segment } = parseNodeId(node);
      // A path that comes back to where it was is told by whoever follows it.
      if (outlines.has(segment)) break;
      const { outline } = await outlinedSegment(reader, segment);
      outlines.set(segment, outline);
      node = outline.parent;
    }
  }
  return segmentIdsOf((id) => outlines.get(id) as SegmentOutline, head);
}

/** msgpack's header of a text of 43 bytes, as long as a content hash. */
const HASH_HEADER = Buffer.from([0xd9, 43]);
const HASH = /^[A-Za-z0-9_-]{43}$/;

/** Every content hash that stands anywhere in encoded bytes. What only looks like one keeps something longer. */
export function hashesIn(bytes: Uint8Array): string[] {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const found: string[] = [];
  for (let at = text.indexOf(HASH_HEADER); at !== -1; at = text.indexOf(HASH_HEADER, at + 1)) {
    const hash = text.toString("latin1", at + 2, at + 45);
    if (HASH.test(hash)) found.push(hash);
  }
  return found;
}
