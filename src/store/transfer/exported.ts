import { type Head, messageOf, pathTo, type Segment, TroupeError } from "../../kernel/index.js";
import { contentHash } from "../../wire/index.js";
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
export type SessionPart =
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
