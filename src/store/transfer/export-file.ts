import { createHash, type Hash } from "node:crypto";
import type { Head, Segment } from "../../kernel/index.js";
import { decode, encode } from "../../wire/index.js";
import { decodeSegment, type StoreReader } from "../records/index.js";
import {
  checkFormat,
  EXPORT_FORMAT,
  EXPORT_VERSION,
  type ExportedSession,
  exportDamaged,
  partsOf,
  type SessionPart,
  unlessDamaged,
} from "./exported.js";

/** The first bytes of a file. After them come records, each four bytes of length (big-endian) and then msgpack. */
const MAGIC = Buffer.from("TROUPE SESSION\n");

type ExportRecord =
  | { readonly kind: "session"; readonly format: string; readonly version: number; readonly head: Head }
  | { readonly kind: "segment"; readonly bytes: Uint8Array }
  | { readonly kind: "component"; readonly hash: string; readonly bytes: Uint8Array }
  /** The last one: the hash of everything before it. */
  | { readonly kind: "end"; readonly digest: string };

/**
 * A session as one file, in pieces.
 *
 * @example
 * for (const piece of sessionFile(reader, "chat-42")) file.write(piece);
 */
export function* sessionFile(reader: StoreReader, sessionId: string): Generator<Uint8Array> {
  const digest = createHash("sha256").update(MAGIC);
  yield MAGIC;
  for (const part of partsOf(reader, sessionId)) {
    const piece = frame(recordOf(part));
    digest.update(piece);
    yield piece;
  }
  yield frame({ kind: "end", digest: digest.digest("base64url") });
}

function recordOf(part: SessionPart): ExportRecord {
  switch (part.kind) {
    case "head":
      return { kind: "session", format: EXPORT_FORMAT, version: EXPORT_VERSION, head: part.head };
    case "segment":
      return { kind: "segment", bytes: encode(part.segment) };
    case "component":
      return part;
  }
}

function frame(record: ExportRecord): Uint8Array {
  const bytes = encode(record);
  const piece = Buffer.alloc(4 + bytes.length);
  piece.writeUInt32BE(bytes.length, 0);
  piece.set(bytes, 4);
  return piece;
}

export function isExportFile(file: Buffer): boolean {
  return file.subarray(0, MAGIC.length).equals(MAGIC);
}

/** Reads a file, record by record; yields how many bytes it has read. */
export function* readingFile(file: Buffer): Generator<number, ExportedSession> {
  const digest = createHash("sha256").update(MAGIC);
  const found: FoundParts = { head: undefined, segments: new Map(), components: new Map() };
  for (let at = MAGIC.length; ; ) {
    const end = at + 4 <= file.length ? at + 4 + file.readUInt32BE(at) : Number.POSITIVE_INFINITY;
    if (end > file.length) throw exportDamaged("it is cut off");
    const record = unlessDamaged(() => decode<ExportRecord>(file.subarray(at + 4, end)));
    if (record?.kind === "end") {
      if (end !== file.length) throw exportDamaged("something follows its end");
      return checkEnd(record, digest, found);
    }
    unlessDamaged(() => keep(record, found));
    digest.update(file.subarray(at, end));
    at = end;
    yield at;
  }
}

interface FoundParts {
  head: Head | undefined;
  readonly segments: Map<string, Segment>;
  readonly components: Map<string, Uint8Array>;
}

function keep(record: Exclude<ExportRecord, { kind: "end" }>, found: FoundParts): void {
  switch (record.kind) {
    case "session":
      found.head = checkFormat(record);
      break;
    case "segment": {
      const segment = decodeSegment(record.bytes);
      found.segments.set(segment.id, segment);
      break;
    }
    case "component":
      found.components.set(record.hash, record.bytes);
      break;
    default:
      throw exportDamaged("it has a record that no release writes");
  }
}

function checkEnd(end: Extract<ExportRecord, { kind: "end" }>, digest: Hash, found: FoundParts): ExportedSession {
  if (end.digest !== digest.digest("base64url")) throw exportDamaged("it was changed after it was written");
  const { head, segments, components } = found;
  if (head === undefined) throw exportDamaged("it has no session");
  return { head, segments, components };
}
