import type { Hash } from "node:crypto";
import { nodeCrypto } from "../../async/index.js";
import {
  checkMetadata,
  checkRowChange,
  checkTenantName,
  type Head,
  messageOf,
  pathTo,
  type Row,
  type RowOrder,
  rowKey,
  type Segment,
  TroupeError,
} from "../../kernel/index.js";
import { contentHash, decode, encode } from "../../wire/index.js";
import { decodeSegment, outlineOfSegment, type StoreReader } from "../records/index.js";
import { wrongFieldOf } from "./check-head.js";
import { partsOf, type SessionToExport } from "./session-parts.js";

/** A session on its own: its head, its rows, all its history (the frames it left too), its components and attachments. */
export interface ExportedSession extends SessionToExport {
  readonly segments: ReadonlyMap<string, Segment>;
  readonly components: ReadonlyMap<string, Uint8Array>;
}

export const EXPORT_FORMAT = "troupe-session";
/** What this release reads. A session without rows is written as version 1, so that older releases can read it. */
export const EXPORT_VERSION = 2;
const WITHOUT_ROWS = 1;

export function versionOf({ rows }: SessionToExport): number {
  return rows.length > 0 ? EXPORT_VERSION : WITHOUT_ROWS;
}

/** The head of an export, if it is one of this release. */
export function checkFormat(from: { readonly format?: unknown; readonly version?: unknown; head?: unknown }): Head {
  const { format, version, head } = from;
  if (format !== EXPORT_FORMAT) throw exportDamaged("it is something else");
  if (version !== WITHOUT_ROWS && version !== EXPORT_VERSION) {
    throw new TroupeError(
      "export_version_unknown",
      `This session was exported in version ${version}; this release reads versions 1 to ${EXPORT_VERSION}. Import it with the release that wrote it.`,
      { details: { found: version, known: EXPORT_VERSION } },
    );
  }
  const wrong = wrongFieldOf(head);
  if (wrong !== undefined) throw exportDamaged(`its head is none: ${wrong} cannot be read`);
  checkLabels(head as Head);
  return head as Head;
}

/** What a list finds a session by. */
function checkLabels({ tenant, metadata }: Head): void {
  unlessDamaged(() => {
    if (tenant !== undefined) checkTenantName(tenant);
    if (metadata !== undefined) checkMetadata(metadata);
  });
}

/** A row of the session that is exported, as a file says it; nothing of it is taken on trust. */
export function rowFrom(from: Partial<Row>, sessionId: string): Row {
  // Their types are what the file says; each is checked.
  const { table, key, session = sessionId, value, version, order } = from as Row;
  if (session !== sessionId) throw exportDamaged("a row is another session's");
  if (!Number.isSafeInteger(version) || version < 1) throw exportDamaged("a row has no version");
  if (!(value instanceof Uint8Array)) throw exportDamaged("a row has no value");
  const named = { session, table, key, value, ...(order !== undefined && { order: orderFrom(order) }) };
  checkRowChange(named);
  return { ...named, version };
}

function orderFrom({ at, owner }: RowOrder): RowOrder {
  return { at, ...(owner !== undefined && { owner }) };
}

/** No row is there twice. */
export function checkRows(rows: readonly Row[]): readonly Row[] {
  if (new Set(rows.map(rowKey)).size < rows.length) throw exportDamaged("a row is there twice");
  return rows;
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

/** The first bytes of a file. After them come records, each four bytes of length (big-endian) and then msgpack. */
const MAGIC = Buffer.from("TROUPE SESSION\n");

type ExportRecord =
  | { readonly kind: "session"; readonly format: string; readonly version: number; readonly head: Head }
  | { readonly kind: "segment"; readonly bytes: Uint8Array }
  | { readonly kind: "component"; readonly hash: string; readonly bytes: Uint8Array }
  /** Since version 2. */
  | { readonly kind: "row"; readonly row: Row }
  /** The last one: the hash of everything before it. */
  | { readonly kind: "end"; readonly digest: string };

/**
 * A session as one file, in pieces.
 *
 * @example
 * for await (const piece of sessionFile(reader, await readSession(backend, "chat-42"))) file.write(piece);
 */
export async function* sessionFile(
  reader: Pick<StoreReader, "segment" | "component">,
  session: SessionToExport,
): AsyncGenerator<Uint8Array> {
  const digest = nodeCrypto().createHash("sha256").update(MAGIC);
  yield MAGIC;
  for await (const record of recordsOf(reader, session)) {
    const piece = frame(record);
    digest.update(piece);
    yield piece;
  }
  yield frame({ kind: "end", digest: digest.digest("base64url") });
}

async function* recordsOf(
  reader: Pick<StoreReader, "segment" | "component">,
  session: SessionToExport,
): AsyncGenerator<ExportRecord> {
  const { head, rows } = session;
  yield { kind: "session", format: EXPORT_FORMAT, version: versionOf(session), head };
  for (const row of rows) yield { kind: "row", row };
  for await (const part of partsOf(reader, session))
    yield part.kind === "segment" ? { kind: "segment", bytes: encode(part.segment) } : part;
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
  const found: FoundParts = { session: undefined, rows: [], segments: new Map(), components: new Map() };
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
  session: { readonly head: Head; readonly version: number } | undefined;
  readonly rows: Row[];
  readonly segments: Map<string, Segment>;
  readonly components: Map<string, Uint8Array>;
}

function keep(record: Exclude<ExportRecord, { kind: "end" }>, found: FoundParts): void {
  switch (record.kind) {
    case "session":
      found.session = { head: checkFormat(record), version: record.version };
      break;
    case "row":
      if (found.session?.version !== EXPORT_VERSION) throw exportDamaged("it has a row where none can be");
      found.rows.push(rowFrom(record.row, found.session.head.sessionId));
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
  const { session, rows, segments, components } = found;
  if (session === undefined) throw exportDamaged("it has no session");
  return { head: session.head, rows: checkRows(rows), segments, components };
}
