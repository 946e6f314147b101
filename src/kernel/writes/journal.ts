import { fingerprint } from "../ids.js";
import { isRecord, type Json, type JsonObject } from "../json.js";
import type { RowWrite } from "./rows.js";

/**
 * What a turn has already done, so that after a crash it is not done again. A row is the recorded outcome of one effect
 * under its replay key; the rows of a turn are cleared by the commit that stores it.
 */
export interface JournalEntry {
  readonly sessionId: string;
  readonly turnId: string;
  /** The replay key: within a turn, the same effect has the same key in every attempt. */
  readonly key: string;
  /** Hash of the effect's canonical envelope: what was asked for. */
  readonly hash: string;
  /** The envelope itself, as far as it is kept (see {@link keptEnvelope}), to say how a replay differs. */
  readonly envelope?: string;
  /** The outcome, encoded. */
  readonly bytes: Uint8Array;
  /** The revision of the session the turn runs over; a worker that was replaced meanwhile is refused. */
  readonly expectedRevision: number;
  /** The number the writer's claim of the session gave it. */
  readonly epoch: number;
  /** Rows of named tables that change in the same write. When the outcome was recorded before, they did then. */
  readonly rows?: readonly RowWrite[];
}

/** A recorded outcome, as the store keeps it. */
export interface JournalRow extends Pick<JournalEntry, "turnId" | "key" | "hash" | "envelope" | "bytes"> {
  /** Its place among the session's rows, from 0, without gaps. */
  readonly sequence: number;
  /** When it was recorded, in milliseconds by the store's clock. */
  readonly at: number;
}

/**
 * Lists a session among the unfinished ones while turns that were asked for wait in it. The rows of a turn come behind
 * it; only a commit that leaves no such turn removes it, so it is never too old.
 */
export const TURNS_WAIT: JournalRow = {
  sequence: 0,
  turnId: "",
  key: "turns_wait",
  hash: "",
  bytes: new Uint8Array(),
  at: Number.MAX_SAFE_INTEGER,
};

/** The replay key of the answer to a tool call that waits for it. */
export function answerKeyOf(completionKey: string): string {
  return `answer:${completionKey}`;
}

/**
 * JSON with every object's keys in order, so that the same value has the same text.
 *
 * @example
 * canonicalJson({ b: 1, a: [true, null] }); // '{"a":[true,null],"b":1}'
 */
export function canonicalJson(value: Json): string {
  // What JSON has no word for (undefined, NaN) is null in a list, as JSON.stringify says it.
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  let text = "";
  if (Array.isArray(value)) {
    for (const each of value) text += text === "" ? canonicalJson(each) : `,${canonicalJson(each)}`;
    return `[${text}]`;
  }
  for (const key of Object.keys(value).sort()) {
    const each = (value as JsonObject)[key];
    if (each === undefined) continue;
    text += `${text === "" ? "" : ","}${JSON.stringify(key)}:${canonicalJson(each)}`;
  }
  return `{${text}}`;
}

const MAX_DIFFERENCES = 20;

/**
 * Where two values differ, as paths from their root (`$`); of more than twenty, the first twenty.
 *
 * @example
 * differingPaths({ model: "a", messages: [1, 2] }, { model: "b", messages: [1] }); // ["$.messages[1]", "$.model"]
 */
export function differingPaths(a: Json | undefined, b: Json | undefined): string[] {
  const paths: string[] = [];
  collect(a, b, "$", paths);
  return paths;
}

function collect(a: Json | undefined, b: Json | undefined, path: string, paths: string[]): void {
  if (a === b || paths.length >= MAX_DIFFERENCES) return;
  if (Array.isArray(a) && Array.isArray(b)) {
    for (let i = 0; i < Math.max(a.length, b.length); i++) collect(a[i], b[i], `${path}[${i}]`, paths);
  } else if (isRecord(a) && isRecord(b)) {
    for (const key of [...new Set([...Object.keys(a), ...Object.keys(b)])].sort()) {
      collect(own(a, key), own(b, key), path + step(key), paths);
    }
  } else paths.push(path);
}

function own(object: JsonObject, key: string): Json | undefined {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

function step(key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

const MAX_KEPT = 32 * 1024;
const MAX_KEPT_STRING = 256;

/**
 * The envelope as a journal row keeps it: canonical, with long strings replaced by their beginning and a fingerprint, so
 * that a difference inside one is still found. Undefined when even that is too large to keep.
 */
export function keptEnvelope(envelope: Json, canonical = canonicalJson(envelope)): string | undefined {
  const kept =
    canonical.length > MAX_KEPT_STRING && hasLongString(envelope) ? canonicalJson(shortened(envelope)) : canonical;
  return kept.length > MAX_KEPT ? undefined : kept;
}

function hasLongString(value: Json): boolean {
  if (typeof value === "string") return value.length > MAX_KEPT_STRING;
  if (Array.isArray(value)) return value.some(hasLongString);
  return isRecord(value) && Object.values(value).some(hasLongString);
}

function shortened(value: Json): Json {
  if (typeof value === "string" && value.length > MAX_KEPT_STRING) {
    return `${value.slice(0, MAX_KEPT_STRING / 2)}… (${value.length} characters, ${fingerprint(value).toString(36)})`;
  }
  if (Array.isArray(value)) return value.map(shortened);
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, shortened(each)]));
}
