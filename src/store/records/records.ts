import { crc32 } from "node:zlib";
import { type Head, type JournalRow, type StoredHead, TroupeError } from "../../kernel/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";

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
  if (sealOf(bytes) !== checksum(payload, key)) throw damaged("it was changed after it was written");
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

export function sealHead({ head, receipts }: StoredHead): Uint8Array {
  const payload = encode({ head, receipts: new Uint8Array(Float64Array.from(receipts).buffer) });
  return seal(payload, head.sessionId);
}

export function openHead(sessionId: string, bytes: Uint8Array): StoredHead {
  const { head, receipts } = decode<{ readonly head: Head; readonly receipts: Uint8Array }>(unseal(bytes, sessionId));
  return { head, receipts: [...new Float64Array(new Uint8Array(receipts).buffer)] };
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

function damaged(why: string): TroupeError {
  return new TroupeError("snapshot_damaged", `A stored record cannot be read: ${why}.`);
}
