import { crc32 } from "node:zlib";
import { type JournalRow, type StoredHead, TroupeError } from "../kernel/index.js";
import { contentHash, decode, encode } from "../wire/index.js";

/**
 * A sealed record: four bytes of CRC-32 over its key and its payload, then the payload. So a record that was changed on
 * the disk, or came to stand under another key, is found when it is read. Components need none: their key is the hash
 * of their content.
 */
const SEAL = 4;

export function seal(key: string, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(SEAL + payload.length);
  new DataView(bytes.buffer).setUint32(0, checksum(key, payload));
  bytes.set(payload, SEAL);
  return bytes;
}

/** The payload; `snapshot_damaged` when it is not what was written under this key. */
export function unseal(key: string, bytes: Uint8Array): Uint8Array {
  const payload = bytes.subarray(SEAL);
  const stored = bytes.length < SEAL ? -1 : new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
  if (stored !== checksum(key, payload)) throw damaged(`record ${key} was changed after it was written`);
  return payload;
}

function checksum(key: string, payload: Uint8Array): number {
  return crc32(payload, crc32(key));
}

export function sealHead(stored: StoredHead): Uint8Array {
  return seal(stored.head.sessionId, encode(stored));
}

export function openHead(sessionId: string, bytes: Uint8Array): StoredHead {
  return decode<StoredHead>(unseal(sessionId, bytes));
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

export function sealJournalRow(sessionId: string, row: JournalRow): Uint8Array {
  return seal(journalKey(sessionId, row.sequence), encode(row));
}

export function openJournalRow(key: string, bytes: Uint8Array): JournalRow {
  return decode<JournalRow>(unseal(key, bytes));
}

function damaged(why: string): TroupeError {
  return new TroupeError("snapshot_damaged", `A stored record cannot be read: ${why}.`);
}
