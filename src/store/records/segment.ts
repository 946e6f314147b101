import { type Segment, type SegmentOutline, TroupeError } from "../../kernel/index.js";
import { decode } from "../../wire/index.js";

/**
 * A segment's id, parent and number of messages. They stand before the messages, so as a rule nothing else is read:
 * following a path, checking a commit and marking what is live cost the same however long the messages are.
 *
 * @example
 * segmentOutline(encode({ id: "a@2", parent: "a@1.3", messages })); // { id: "a@2", parent: "a@1.3", count: 2 }
 */
export function segmentOutline(bytes: Uint8Array): SegmentOutline {
  return readOutline(bytes) ?? decodedOutline(bytes);
}

/** What `encode` puts before the msgpack, and a map of three whose first key is `id`. */
const BEGINNING = [0x54, 0x70, 1, 0xde, 0, 3, 0xa2, 0x69, 0x64];
const PARENT = [0xa6, 0x70, 0x61, 0x72, 0x65, 0x6e, 0x74];
const MESSAGES = [0xa8, 0x6d, 0x65, 0x73, 0x73, 0x61, 0x67, 0x65, 0x73];
const NIL = 0xc0;

/** Undefined for anything that is not written as our own encoder writes a segment. */
function readOutline(bytes: Uint8Array): SegmentOutline | undefined {
  if (!startsAt(bytes, 0, BEGINNING)) return undefined;
  const id = readText(bytes, BEGINNING.length);
  if (id === undefined || !startsAt(bytes, id.end, PARENT)) return undefined;
  const at = id.end + PARENT.length;
  const parent = bytes[at] === NIL ? { text: null, end: at + 1 } : readText(bytes, at);
  if (parent === undefined || !startsAt(bytes, parent.end, MESSAGES)) return undefined;
  const count = readCount(bytes, parent.end + MESSAGES.length);
  return count === undefined ? undefined : { id: id.text, parent: parent.text, count };
}

function startsAt(bytes: Uint8Array, at: number, expected: readonly number[]): boolean {
  for (let i = 0; i < expected.length; i++) if (bytes[at + i] !== expected[i]) return false;
  return true;
}

function readText(bytes: Uint8Array, at: number): { readonly text: string; readonly end: number } | undefined {
  const token = bytes[at] ?? 0;
  const [start, length] =
    token >= 0xa0 && token < 0xc0
      ? [at + 1, token & 0x1f]
      : token === 0xd9
        ? [at + 2, bytes[at + 1] ?? 0]
        : token === 0xda
          ? [at + 3, ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0)]
          : [0, -1];
  const end = start + length;
  if (length < 0 || end > bytes.length) return undefined;
  return { text: Buffer.from(bytes.buffer, bytes.byteOffset + start, length).toString("utf8"), end };
}

function readCount(bytes: Uint8Array, at: number): number | undefined {
  const token = bytes[at] ?? 0;
  if (token >= 0x90 && token < 0xa0) return token & 0x0f;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (token === 0xdc && at + 3 <= bytes.length) return view.getUint16(at + 1);
  if (token === 0xdd && at + 5 <= bytes.length) return view.getUint32(at + 1);
  return undefined;
}

function decodedOutline(bytes: Uint8Array): SegmentOutline {
  const { id, parent, messages } = decodeSegment(bytes);
  return { id, parent, count: messages.length };
}

/** Decodes a segment; `snapshot_damaged` when the bytes are no segment. */
export function decodeSegment(bytes: Uint8Array): Segment {
  const segment = decode<Partial<Segment> | null>(bytes);
  const { id, parent, messages } = segment ?? {};
  if (typeof id !== "string" || !(parent === null || typeof parent === "string") || !Array.isArray(messages)) {
    throw new TroupeError("snapshot_damaged", "A stored record cannot be read: it is no segment of a history.");
  }
  return segment as Segment;
}
