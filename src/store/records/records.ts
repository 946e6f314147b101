import { crc32 } from "node:zlib";
import {
  type Change,
  canonicalJson,
  type Head,
  type JournalEntry,
  type JournalRow,
  type Json,
  keptEnvelope,
  messageOf,
  type Row,
  rowKey,
  type Segment,
  type SegmentOutline,
  type StoredHead,
  type StoreWrite,
  TroupeError,
  type WriteResult,
} from "../../kernel/index.js";
import { contentHash, damagedRecord, decode, encode } from "../../wire/index.js";

/**
 * A sealed record: four bytes of CRC-32, then the payload, so that a record which was changed on the disk is found when
 * it is read. The sum is over the payload, and over the key too where a record under another key would go unnoticed: a
 * session whose head is misnamed is a session nobody knows of. Segments say themselves who they are, and components need
 * no seal at all: their key is the hash of their content.
 */
const SEAL = 4;

export function seal(payload: Uint8Array, key?: string): Uint8Array {
  // From Node's pool: every commit makes a few, and they are copied into the store at once.
  const bytes = Buffer.allocUnsafe(SEAL + payload.length);
  bytes.writeUInt32LE(checksum(payload, key), 0);
  bytes.set(payload, SEAL);
  return bytes;
}

/** The payload; `snapshot_damaged` when it is not what was written. */
export function unseal(bytes: Uint8Array, key?: string): Uint8Array {
  const payload = bytes.subarray(SEAL);
  if (sealOf(bytes) !== checksum(payload, key)) throw damagedRecord("it was changed after it was written");
  return payload;
}

/** The sum a sealed record bears; -1 for bytes too short to have one. */
export function sealOf(bytes: Uint8Array): number {
  const [a = 0, b = 0, c = 0, d = 0] = bytes;
  return bytes.length < SEAL ? -1 : (a | (b << 8) | (c << 16) | (d << 24)) >>> 0;
}

function checksum(payload: Uint8Array, key: string | undefined): number {
  return key === undefined ? crc32(payload) : crc32(payload, crc32(key));
}

export function sealHead({ head, at, receipts }: StoredHead): Uint8Array {
  const payload = encode({ head, receipts: new Uint8Array(Float64Array.from(receipts).buffer), at });
  return seal(payload, head.sessionId);
}

export function openHead(sessionId: string, bytes: Uint8Array): StoredHead {
  const {
    head,
    receipts,
    at = 0,
  } = decode<{ readonly head: Head; readonly receipts: Uint8Array; readonly at?: number }>(unseal(bytes, sessionId));
  return { head, at, receipts: [...new Float64Array(new Uint8Array(receipts).buffer)] };
}

/** A component's bytes, if they are what their name says. */
export function openComponent(hash: string, bytes: Uint8Array): Uint8Array {
  if (contentHash(bytes) === hash) return bytes;
  throw new TroupeError("component_damaged", `Stored component ${hash} was changed after it was written.`, {
    details: { hash },
  });
}

// A session id has no control characters, so no session's rows stand among another's.
const BEFORE_SEQUENCE = "\u007f";
const AFTER_SEQUENCES = "\u0080";

export function journalKey(sessionId: string, sequence: number): string {
  return sessionId + BEFORE_SEQUENCE + sequence.toString(16).padStart(8, "0");
}

/** The keys of a session's journal rows, and of no others, lie between these. */
export function journalRange(sessionId: string): { readonly start: string; readonly end: string } {
  return { start: sessionId + BEFORE_SEQUENCE, end: sessionId + AFTER_SEQUENCES };
}

export function sessionOfJournalKey(key: string): string {
  return key.slice(0, key.lastIndexOf(BEFORE_SEQUENCE));
}

/** The row names its session, as heads do, so that one under a wrong key can be told from one that was changed. */
export function sealJournalRow(sessionId: string, row: JournalRow): Uint8Array {
  return seal(encode({ ...row, sessionId }), journalKey(sessionId, row.sequence));
}

export function openJournalRow(key: string, bytes: Uint8Array): JournalRow {
  const { sessionId: _, ...row } = decode<JournalRow & { readonly sessionId: string }>(unseal(bytes, key));
  return row;
}

/** A row says which it is, as journal rows do. */
export function sealRow(row: Row): Uint8Array {
  return seal(encode(row), rowKey(row));
}

export function openRow(key: string, bytes: Uint8Array): Row {
  return decode<Row>(unseal(bytes, key));
}

/** A journal whose rows follow each other; with one missing, the turn would do again what it has done. */
export function inOrder(sessionId: string, rows: JournalRow[]): JournalRow[] {
  const missing = rows.findIndex(({ sequence }, index) => sequence !== index);
  if (missing === -1) return rows;
  throw new TroupeError("journal_damaged", `Row ${missing} of the journal of session ${sessionId} is missing.`, {
    details: { sessionId, sequence: missing },
  });
}

/**
 * What a journal row says about the request it answers: the hash of its canonical form, and as much of it as is kept to
 * tell how another request differs.
 *
 * @example
 * const { hash, envelope } = sealEnvelope({ kind: "tool_attempt", toolName: "weather", args: { city: "Oslo" } });
 */
export function sealEnvelope(request: Json): Pick<JournalEntry, "hash" | "envelope"> {
  const canonical = canonicalJson(request);
  const hash = contentHash(canonical);
  const envelope = keptEnvelope(request, canonical);
  return { hash, ...(envelope !== undefined && { envelope }) };
}

/** What is left of a deleted session: its id is not used again, because forks may still share its segments. */
export interface Tombstone {
  readonly sessionId: string;
  readonly revision: number;
  readonly at: number;
}

export function sealTombstone(tombstone: Tombstone): Uint8Array {
  return seal(encode(tombstone), tombstone.sessionId);
}

/** The tables whose seals cover their keys, and the key a record of theirs names itself. */
const OWN_KEY: Readonly<Record<string, (payload: Uint8Array) => string>> = {
  heads: (payload) => decode<StoredHead>(payload).head.sessionId,
  journal: (payload) => {
    const { sessionId, sequence } = decode<JournalRow & { readonly sessionId: string }>(payload);
    return journalKey(sessionId, sequence);
  },
  deleted: (payload) => decode<Tombstone>(payload).sessionId,
  rows: (payload) => rowKey(decode<Row>(payload)),
};

/**
 * The key a record belongs under: another than its own only for a whole record that came to stand under a wrong one.
 * One that was changed stays where it is.
 */
export function rightKey(table: string, key: string, bytes: Uint8Array): string {
  const ownKey = OWN_KEY[table];
  if (ownKey === undefined || sealOf(bytes) === checksum(bytes.subarray(SEAL), key)) return key;
  try {
    const own = ownKey(bytes.subarray(SEAL));
    return sealOf(bytes) === checksum(bytes.subarray(SEAL), own) ? own : key;
  } catch {
    return key;
  }
}

/**
 * A segment's id, parent and number of messages. They stand before the messages, so as a rule nothing else is read:
 * following a path, checking a commit and marking what is live cost the same however long the messages are.
 *
 * @example
 * segmentOutline(encode({ id: "a@2", parent: "a@1.3", messages })); // { id: "a@2", parent: "a@1.3", count: 2 }
 */
export function segmentOutline(bytes: Uint8Array): SegmentOutline {
  return readOutline(bytes) ?? outlineOfSegment(decodeSegment(bytes));
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

export function outlineOfSegment({ id, parent, messages }: Segment): SegmentOutline {
  return { id, parent, count: messages.length };
}

/** Decodes a segment; `snapshot_damaged` when the bytes are no segment. */
export function decodeSegment(bytes: Uint8Array): Segment {
  const segment = decode<Partial<Segment> | null>(bytes);
  const { id, parent, messages } = segment ?? {};
  if (typeof id !== "string" || !(parent === null || typeof parent === "string") || !Array.isArray(messages)) {
    throw damagedRecord("it is no segment of a history");
  }
  return segment as Segment;
}

/** The answers to a batch whose transaction failed as a whole. Repeating a write is safe: it has an id of its own. */
export function writeFailed(batch: readonly StoreWrite[], cause: unknown): WriteResult[] {
  return batch.map((write) => {
    const sessionId = sessionOf(write);
    const what = sessionId === undefined ? "Nothing" : `Nothing of session ${sessionId}`;
    return {
      ok: false,
      error: new TroupeError(
        "store_write_failed",
        `${what} was stored: ${messageOf(cause)}. Check the disk, then try again.`,
        { retryable: true, details: sessionId === undefined ? {} : { sessionId }, cause },
      ),
    };
  });
}

function sessionOf(write: StoreWrite): string | undefined {
  switch (write.kind) {
    case "commit":
      return write.commit.head.sessionId;
    case "record":
      return write.entry.sessionId;
    case "clear":
    case "delete":
    case "import":
      return write.sessionId;
    case "rows":
      return write.owner?.sessionId;
    case "sweep":
      return undefined;
  }
}

/** Counts a transaction and the records it wrote. What was deleted is not counted. */
export function countWrites(counts: { transactions: number; records: number }, changes: readonly Change[]): void {
  if (changes.length > 0) counts.transactions++;
  for (const { kind } of changes) if (kind.startsWith("put_")) counts.records++;
}

/**
 * The store's thread ended by itself. Another one is not started in its place: whether it died in the middle of a write
 * cannot be known, and LMDB's lock would then be held for ever.
 */
export function storeLost(cause?: unknown): TroupeError {
  return new TroupeError(
    "store_lost",
    "The store's thread is gone, and nothing can be stored any more. Restart the process; what was answered is there.",
    { cause },
  );
}

/** What is asked of a store that was closed. */
export function storeClosed(): TroupeError {
  return new TroupeError("store_closed", "The store is closed.");
}
