import type { Hash } from "node:crypto";
import { nodeCrypto } from "../../async/index.js";
import { type Head, messageOf, pathTo, type Segment, TroupeError } from "../../kernel/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";
import { decodeSegment, outlineOfSegment, outlinesOf, type StoreReader } from "../records/index.js";

/** A session on its own: its head, all its history (the frames it left too), its components and attachments. */
export interface ExportedSession {
  readonly head: Head;
  readonly segments: ReadonlyMap<string, Segment>;
  readonly components: ReadonlyMap<string, Uint8Array>;
}

export const EXPORT_FORMAT = "troupe-session";
export const EXPORT_VERSION = 1;

/** What a session consists of, one thing after the other. */
type SessionPart =
  | { readonly kind: "head"; readonly head: Head }
  | { readonly kind: "segment"; readonly segment: Segment }
  | { readonly kind: "component"; readonly hash: string; readonly bytes: Uint8Array };

/**
 * The parts of a stored session. Throws `session_unknown`, and what reading a damaged session throws: an export is whole
 * or there is none.
 */
export function* partsOf(reader: StoreReader, sessionId: string): Generator<SessionPart> {
  const head = reader.head(sessionId);
  if (head === undefined) {
    throw new TroupeError("session_unknown", `There is no session ${sessionId} in this store.`, {
      details: { sessionId },
    });
  }
  yield { kind: "head", head };
  const named = new Set(Object.values(head.components));
  const hashes = new Set(named);
  for (const id of segmentsOf(reader, head)) {
    const bytes = reader.segment(id) as Uint8Array;
    for (const hash of hashesIn(bytes)) hashes.add(hash);
    yield { kind: "segment", segment: decodeSegment(bytes) };
  }
  for (const hash of hashes) {
    const bytes = reader.component(hash);
    if (bytes !== undefined) {
      // A set goes on to what is added while it is gone through: attachments of inputs that wait.
      if (named.has(hash)) for (const inner of hashesIn(bytes)) hashes.add(inner);
      yield { kind: "component", hash, bytes };
    } else if (named.has(hash)) {
      throw new TroupeError("component_missing", `Session ${sessionId} refers to a component that is not stored.`, {
        details: { sessionId, hash },
      });
    }
  }
}

/** Every segment a session leads to, oldest first on each path. */
export function segmentsOf(reader: Pick<StoreReader, "segment">, { leaf, frames = [] }: Head): Set<string> {
  const outlineOf = outlinesOf(reader);
  const found = new Set<string>();
  for (const end of [...frames.map((left) => left.leaf), leaf]) {
    const path = [...pathTo(outlineOf, end)].map(({ outline }) => outline.id);
    for (const id of path.reverse()) found.add(id);
  }
  return found;
}

/** The head of an export, if it is one of this release. */
export function checkFormat(from: { readonly format?: unknown; readonly version?: unknown; head?: unknown }): Head {
  const { format, version, head } = from;
  if (format !== EXPORT_FORMAT) throw exportDamaged("it is something else");
  if (version !== EXPORT_VERSION) {
    throw new TroupeError(
      "export_version_unknown",
      `This session was exported in version ${version}; this release reads version ${EXPORT_VERSION}.`,
      { details: { found: version, known: EXPORT_VERSION } },
    );
  }
  const { sessionId, revision, components } = (head ?? {}) as Partial<Head>;
  if (typeof sessionId !== "string" || !Number.isInteger(revision) || typeof components !== "object") {
    throw exportDamaged("its head is none");
  }
  return head as Head;
}

/** Is every path there, and every component what it is called? Yields between components. */
export function* checkingWhole({ head, segments, components }: ExportedSession): Generator<void, void> {
  const outlineOf = (id: string) => {
    const segment = segments.get(id);
    if (segment === undefined) throw exportDamaged(`history segment ${id} is missing`);
    return outlineOfSegment(segment);
  };
  for (const leaf of [head.leaf, ...(head.frames ?? []).map((left) => left.leaf)]) {
    unlessDamaged(() => [...pathTo(outlineOf, leaf)]);
  }
  for (const [hash, bytes] of components) {
    if (contentHash(bytes) !== hash) throw exportDamaged(`component ${hash} was changed`);
    yield;
  }
  for (const hash of Object.values(head.components)) {
    if (!components.has(hash)) throw exportDamaged(`component ${hash} is missing`);
  }
}

export function exportDamaged(why: string, cause?: unknown): TroupeError {
  return new TroupeError("export_damaged", `This is no exported session, or not a whole one: ${why}.`, { cause });
}

/** What cannot be read is damage of the file, whatever could not read it. */
export function unlessDamaged<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof TroupeError && error.code.startsWith("export_")) throw error;
    throw exportDamaged(messageOf(error), error);
  }
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
  const digest = nodeCrypto().createHash("sha256").update(MAGIC);
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
  const digest = nodeCrypto().createHash("sha256").update(MAGIC);
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
