import {
  checkBudget,
  checkTenantName,
  type Head,
  type ImportWrite,
  isOfMonitor,
  nodeId,
  parseNodeId,
  type Segment,
  type SessionBudget,
  segmentId,
  uncounted,
} from "../../kernel/index.js";
import { decode, encode } from "../../wire/index.js";
import { readExportJson } from "./export-json.js";
import { checkingWhole, type ExportedSession, isExportFile, readingFile } from "./exported.js";
import { withoutWork } from "./imported-tasks.js";

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
    budget,
  }: { readonly sessionId?: string; readonly tenant?: string | undefined; readonly budget?: SessionBudget } = {},
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
  const head = {
    ...renamedHead(session.head, names),
    sessionId,
    revision,
    components: withoutWiderBudget(session, budget),
    ...(tenant !== undefined && { tenant }),
  };
  const rows = withoutWork(session.rows.filter((row) => !isOfMonitor(row)));
  yield { ...take(), head, rows: rows.map((row) => ({ ...row, session: sessionId })) };
}

/** The component a session keeps its own budget in. */
const BUDGET = "budget";

/** A file must not lift the host's budget: one that is wider, or none at all, is left behind, and the host's counts. */
function withoutWiderBudget({ head, components }: ExportedSession, cap: SessionBudget | undefined): Head["components"] {
  const hash = head.components[BUDGET];
  const bytes = hash === undefined ? undefined : components.get(hash);
  if (cap === undefined || bytes === undefined) return head.components;
  const { [BUDGET]: _, ...others } = head.components;
  try {
    const own = checkBudget(decode<{ readonly budget: unknown }>(bytes).budget);
    return isWithin(own, cap) ? head.components : others;
  } catch {
    return others;
  }
}

function isWithin(own: SessionBudget, cap: SessionBudget): boolean {
  const { maxTokens = Number.POSITIVE_INFINITY, maxCost = Number.POSITIVE_INFINITY } = own;
  return (
    maxTokens <= (cap.maxTokens ?? Number.POSITIVE_INFINITY) && maxCost <= (cap.maxCost ?? Number.POSITIVE_INFINITY)
  );
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
  // A file must not do without plugins that the host has for everybody.
  const { plugins: _, ...labelled } = head;
  const { frames, parent } = head;
  return {
    ...uncounted(labelled),
    operation: `import:${head.sessionId}@${head.revision}`,
    leaf: renamedNode(head.leaf, names),
    ...(frames && { frames: frames.map((frame) => ({ ...frame, leaf: renamedNode(frame.leaf, names) })) }),
    // Where it was forked is known as far as it came along.
    ...(parent && { parent: { ...parent, leaf: renamedNode(parent.leaf, names) } }),
  };
}
