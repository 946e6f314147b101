import { type Message, parseNodeId, type Segment, TroupeError } from "../kernel/index.js";
import { decode } from "../wire/index.js";
import type { StoreReader } from "./contract.js";

/**
 * The messages from the root to `leaf`, oldest first. Walks the segments backwards; where a segment continues a node in
 * the middle of another one (a fork), what came after that node belongs to the other branch and is cut off.
 *
 * @example
 * const messages = readHistory(reader, "chat-42@7.3");
 */
export function readHistory(reader: Pick<StoreReader, "segment">, leaf: string | null): Message[] {
  const newestFirst: (readonly Message[])[] = [];
  for (const { segment, index } of walk(reader, leaf)) newestFirst.push(segment.messages.slice(0, index + 1));
  return newestFirst.reverse().flat();
}

/**
 * Is a node on the way from the root to `leaf`?
 *
 * @example
 * isOnPath(reader, "chat-42@7.3", "chat-42@2.0"); // true
 */
export function isOnPath(reader: Pick<StoreReader, "segment">, leaf: string | null, node: string): boolean {
  const wanted = parseNodeId(node);
  for (const { segment, index } of walk(reader, leaf)) {
    if (segment.id === wanted.segment) return wanted.index >= 0 && wanted.index <= index;
  }
  return false;
}

/** The segments from `leaf` back to the root, each with the index of its last message on the path. */
function* walk(
  reader: Pick<StoreReader, "segment">,
  leaf: string | null,
): Generator<{ readonly segment: Segment; readonly index: number }> {
  const seen = new Set<string>();
  for (let node = leaf; node !== null; ) {
    const { segment: id, index } = parseNodeId(node);
    // Only damaged records can form a ring, and following it would never end.
    if (seen.has(id)) throw damaged(id, "it is its own ancestor");
    seen.add(id);
    const segment = readSegment(reader, id);
    if (!Number.isInteger(index) || index < 0 || index >= segment.messages.length) {
      throw damaged(id, `it has ${segment.messages.length} messages, but node ${node} is expected in it`);
    }
    yield { segment, index };
    node = segment.parent;
  }
}

function readSegment(reader: Pick<StoreReader, "segment">, id: string): Segment {
  const bytes = reader.segment(id);
  if (bytes === undefined) throw damaged(id, "it is missing");
  let segment: Segment;
  try {
    segment = decode<Segment>(bytes);
  } catch (error) {
    // A record of a newer release is whole, only unknown here: say that, not "damaged".
    if (error instanceof TroupeError && error.code === "snapshot_version_unknown") throw error;
    throw damaged(id, "it cannot be decoded", error);
  }
  if (segment?.id !== id || !Array.isArray(segment.messages)) throw damaged(id, "it holds another record");
  return segment;
}

function damaged(segment: string, why: string, cause?: unknown): TroupeError {
  return new TroupeError("history_damaged", `History segment ${segment} cannot be used: ${why}.`, {
    details: { segment },
    cause,
  });
}
