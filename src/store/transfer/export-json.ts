import type { Head, Message, Row, Segment } from "../../kernel/index.js";
import { decode } from "../../wire/index.js";
import type { StoreReader } from "../records/index.js";
import {
  checkFormat,
  checkRows,
  EXPORT_FORMAT,
  EXPORT_VERSION,
  type ExportedSession,
  exportDamaged,
  rowFrom,
  unlessDamaged,
  versionOf,
} from "./exported.js";
import { partsOf, type SessionToExport } from "./session-parts.js";

/** An exported session as a person reads it, and as it is read back. */
interface SessionDocument {
  readonly format: string;
  readonly version: number;
  readonly head: Head;
  /** Since version 2. */
  readonly rows?: readonly RowDocument[];
  readonly segments: readonly Segment[];
  readonly components: readonly ComponentDocument[];
}

interface ComponentDocument {
  readonly hash: string;
  /** What the head calls it. */
  readonly names: readonly string[];
  /** What it says, to be read by people: dates and bytes do not survive JSON. */
  readonly value?: unknown;
  readonly base64: string;
}

type RowDocument = Pick<Row, "table" | "key" | "version" | "order"> & Pick<ComponentDocument, "value" | "base64">;

/**
 * A session as readable JSON, in pieces. It can be imported again; of a component, its `base64` is what counts.
 *
 * @example
 * for await (const piece of sessionJson(reader, await readSession(backend, "chat-42"))) file.write(piece);
 */
export async function* sessionJson(
  reader: Pick<StoreReader, "segment" | "component">,
  session: SessionToExport,
): AsyncGenerator<Uint8Array> {
  for await (const text of textsOf(reader, session)) yield Buffer.from(text);
}

/** What `JSON.stringify` would make of the whole {@link SessionDocument}. */
async function* textsOf(
  reader: Pick<StoreReader, "segment" | "component">,
  session: SessionToExport,
): AsyncGenerator<string> {
  const { head, rows } = session;
  const opening = JSON.stringify({ format: EXPORT_FORMAT, version: versionOf(session), head }, null, 2);
  yield opening.slice(0, -2);
  const lists = { row: new ListText("rows"), segment: new ListText("segments"), component: new ListText("components") };
  for (const row of rows) yield lists.row.add(rowDocument(row));
  // Without rows the document is one that older releases read.
  if (!lists.row.isEmpty) yield lists.row.end();
  for await (const part of partsOf(reader, session)) {
    if (part.kind === "segment") yield lists.segment.add(part.segment);
    else {
      if (lists.component.isEmpty) yield lists.segment.end();
      yield lists.component.add(documentOf(part.hash, part.bytes, head));
    }
  }
  if (lists.component.isEmpty) yield lists.segment.end();
  yield `${lists.component.end()}\n}\n`;
}

function rowDocument({ table, key, version, order, value }: Row): RowDocument {
  return { table, key, version, ...(order && { order }), ...readable(value), base64: toBase64(value) };
}

function toBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("base64");
}

/** The text of a list inside of an object, item by item. */
class ListText {
  readonly #name: string;
  isEmpty = true;

  constructor(name: string) {
    this.#name = name;
  }

  add(item: unknown): string {
    const before = this.isEmpty ? `,\n  "${this.#name}": [` : ",";
    this.isEmpty = false;
    // A line break inside of a text is escaped: those there are, are of the layout.
    return `${before}\n    ${JSON.stringify(item, null, 2).replaceAll("\n", "\n    ")}`;
  }

  end(): string {
    return this.isEmpty ? `,\n  "${this.#name}": []` : "\n  ]";
  }
}

function documentOf(hash: string, bytes: Uint8Array, head: Head): ComponentDocument {
  const names = Object.keys(head.components).filter((name) => head.components[name] === hash);
  return { hash, names, ...readable(bytes), base64: toBase64(bytes) };
}

function readable(bytes: Uint8Array): { readonly value?: unknown } {
  try {
    const value = decode(bytes);
    JSON.stringify(value);
    return { value };
  } catch {
    // An attachment, or what JSON has no words for.
    return {};
  }
}

export function readExportJson(text: string): ExportedSession {
  const document = unlessDamaged(() => JSON.parse(text) as Partial<SessionDocument> | null);
  const head = checkFormat(document ?? {});
  const { version, rows = [], segments, components } = document ?? {};
  if (!Array.isArray(segments) || !Array.isArray(components)) throw exportDamaged("its history is missing");
  if (!Array.isArray(rows) || (rows.length > 0 && version !== EXPORT_VERSION))
    throw exportDamaged("it has rows where none can be");
  return unlessDamaged(() => ({
    head,
    rows: checkRows((rows as RowDocument[]).map((row) => readRow(row, head.sessionId))),
    segments: new Map(segments.map((segment) => [checkSegment(segment).id, segment])),
    components: new Map((components as ComponentDocument[]).map(({ hash, base64 }) => [hash, fromBase64(base64)])),
  }));
}

function readRow({ base64, ...row }: RowDocument, sessionId: string): Row {
  return rowFrom({ ...row, value: fromBase64(base64) }, sessionId);
}

function fromBase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, "base64"));
}

function checkSegment(segment: Segment): Segment {
  const { id, parent, messages } = segment;
  const isMessage = (message: Partial<Message> | null) =>
    typeof message?.id === "string" && typeof message.role === "string" && Array.isArray(message.parts);
  const isSegment =
    typeof id === "string" && (parent === null || typeof parent === "string") && Array.isArray(messages);
  if (!isSegment || !messages.every(isMessage)) throw exportDamaged(`history segment ${id} is none`);
  return segment;
}
