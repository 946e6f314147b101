import {
  checkTenantName,
  type Head,
  type ImportWrite,
  nodeId,
  parseNodeId,
  type Segment,
  segmentId,
  uncounted,
} from "../../kernel/index.js";
import { encode } from "../../wire/index.js";
import { readExportJson } from "./export-json.js";
import { checkingWhole, type ExportedSession, isExportFile, readingFile } from "./exported.js";

/**
 * Reads an exported session, of either form; yields how many bytes it has read. JSON is read in one step. Throws
 * `export_damaged` for a file that is cut off, changed or something else, and `export_version_unknown` for one of a newer
 * release.
 */
export function* readingExport(bytes: Uint8Array): Generator<number, ExportedSession> {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const session = isExportFile(file) ? yield* readingFile(file) : readExportJson(file.toString("utf8"));
  for (const _ of checkingWhole(session)) yield bytes.length;
  return session;
}

/** How much one transaction of an import writes: commits wait no longer than that. */
const PART_BYTES = 4 * 1024 * 1024;

/**
 * The writes that make an exported session one of this store, under its own id or another. Its history becomes its own:
 * segments it shared with the session it was forked from are stored under its name, behind the last revision it had, so
 * they never meet those of another session. Nodes of its own keep their numbers. Its rows keep theirs too, and name it.
 *
 * @example
 * for (const write of importing(session, { sessionId: "chat-43" })) backend.write([write]);
 */
export function* importing(
  session: ExportedSession,
  {
    sessionId = session.head.sessionId,
    tenant = session.head.tenant,
  }: { readonly sessionId?: string; readonly tenant?: string | undefined } = {},
): Generator<ImportWrite> {
  if (tenant !== undefined) checkTenantName(tenant);
  const { names, revision } = namesOf(session, sessionId);
  const part = { segments: [] as ImportedSegment[], components: [] as ImportedComponent[], size: 0 };
  const take = (): ImportWrite => {
    part.size = 0;
    const [segments, components] = [part.segments.splice(0), part.components.splice(0)];
    return { kind: "import", sessionId, segments, components };
  };
  for (const segment of session.segments.values()) {
    const renamed = renamedSegment(segment, names);
    const bytes = encode(renamed);
    part.segments.push({ id: renamed.id, bytes });
    part.size += bytes.length;
    if (part.size >= PART_BYTES) yield take();
  }
  for (const [hash, bytes] of session.components) {
    part.components.push({ hash, bytes });
    part.size += bytes.length;
    if (part.size >= PART_BYTES) yield take();
  }
  const head = { ...renamedHead(session.head, names), sessionId, revision, ...(tenant !== undefined && { tenant }) };
  yield { ...take(), head, rows: session.rows.map((row) => ({ ...row, session: sessionId })) };
}

type ImportedSegment = ImportWrite["segments"][number];
type ImportedComponent = ImportWrite["components"][number];
type Names = ReadonlyMap<string, string>;

/** The new name of each segment, and the revision behind which none of them is. */
function namesOf({ head, segments }: ExportedSession, sessionId: string): { names: Names; revision: number } {
  const own = new Map<string, number>();
  for (const id of segments.keys()) {
    const revision = id.startsWith(`${head.sessionId}@`) ? id.slice(head.sessionId.length + 1) : "";
    if (/^\d+$/.test(revision)) own.set(id, Number(revision));
  }
  let revision = Math.max(head.revision, ...own.values());
  const names = [...segments.keys()].map((id): [string, string] => [
    id,
    segmentId(sessionId, own.get(id) ?? ++revision),
  ]);
  return { names: new Map(names), revision };
}

function renamedNode(node: string | null, names: Names): string | null {
  if (node === null) return null;
  const { segment, index } = parseNodeId(node);
  const name = names.get(segment);
  return name === undefined ? null : nodeId(name, index);
}

function renamedSegment({ id, parent, messages }: Segment, names: Names): Segment {
  return { id: names.get(id) as string, parent: renamedNode(parent, names), messages };
}

function renamedHead(head: Head, names: Names): Head {
  const { frames, parent } = head;
  return {
    ...uncounted(head),
    operation: `import:${head.sessionId}@${head.revision}`,
    leaf: renamedNode(head.leaf, names),
    ...(frames && { frames: frames.map((frame) => ({ ...frame, leaf: renamedNode(frame.leaf, names) })) }),
    // Where it was forked is known as far as it came along.
    ...(parent && { parent: { ...parent, leaf: renamedNode(parent.leaf, names) } }),
  };
}
