import type { Head, Message, Segment } from "../../kernel/index.js";
import { decode } from "../../wire/index.js";
import type { StoreReader } from "../records/index.js";
import {
  checkFormat,
  EXPORT_FORMAT,
  EXPORT_VERSION,
  type ExportedSession,
  exportDamaged,
  partsOf,
  unlessDamaged,
} from "./exported.js";

/** An exported session as a person reads it, and as it is read back. */
interface SessionDocument {
  readonly format: string;
  readonly version: number;
  readonly head: Head;
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

/**
 * A session as readable JSON, in pieces. It can be imported again; of a component, its `base64` is what counts.
 *
 * @example
 * for (const piece of sessionJson(reader, "chat-42")) file.write(piece);
 */
export function* sessionJson(reader: StoreReader, sessionId: string): Generator<Uint8Array> {
  for (const text of textsOf(reader, sessionId)) yield Buffer.from(text);
}

/** What `JSON.stringify` would make of the whole {@link SessionDocument}. */
function* textsOf(reader: StoreReader, sessionId: string): Generator<string> {
  let head: Head | undefined;
  const lists = { segment: new ListText("segments"), component: new ListText("components") };
  for (const part of partsOf(reader, sessionId)) {
    if (part.kind === "head") {
      head = part.head;
      const opening = JSON.stringify({ format: EXPORT_FORMAT, version: EXPORT_VERSION, head }, null, 2);
      yield opening.slice(0, -2);
    } else if (part.kind === "segment") yield lists.segment.add(part.segment);
    else {
      if (lists.component.isEmpty) yield lists.segment.end();
      yield lists.component.add(documentOf(part.hash, part.bytes, head as Head));
    }
  }
  if (lists.component.isEmpty) yield lists.segment.end();
  yield `${lists.component.end()}\n}\n`;
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
  return { hash, names, ...readable(bytes), base64: Buffer.from(bytes).toString("base64") };
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
  const { segments, components } = document ?? {};
  if (!Array.isArray(segments) || !Array.isArray(components)) throw exportDamaged("its history is missing");
  return unlessDamaged(() => ({
    head,
    segments: new Map(segments.map((segment) => [checkSegment(segment).id, segment])),
    components: new Map(
      (components as ComponentDocument[]).map(({ hash, base64 }) => [
        hash,
        new Uint8Array(Buffer.from(base64, "base64")),
      ]),
    ),
  }));
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
