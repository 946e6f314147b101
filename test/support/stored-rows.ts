import { isDeepStrictEqual } from "node:util";
import { type Database, open } from "lmdb";
import { contentHash, decode, encode } from "../../dist/src/wire/index.js";

type Table = Database<Buffer, string>;

const TABLE_NAMES = ["heads", "segments", "components", "journal", "deleted", "rows", "order", "children"] as const;
/** Their entries are all in their keys. */
const LISTS: readonly string[] = ["order", "children"];
const TABLE = { encoding: "binary", compression: false, cache: false } as const;
/** Four bytes before what is in every row but a component's. */
const SEAL = 4;

/** Names that are drawn: of operations, inputs, runtimes and calls, and keys that are made of those. */
const DRAWN = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|\b(wait|ask|approval)_[\w-]{16,}/g;
/** A row of a call that waits is named after its key. */
const WAITING = /(\bwaiting[\w.:-]*\u007f.*\u007f|\bwaiting[\w.:-]*\u007f)[a-z0-9]+$/;
/** What a clock said. */
const MEASURED = new Set(["durationMs", "firstTokenMs", "at", "since", "expires", "deadline", "until", "waitingSince"]);

/**
 * Every row of a closed store, by table and key, as its bytes. In rows with something drawn or measured in them that is
 * blotted out: the same work leaves the same rows.
 */
export function storedRows(path: string): Record<string, Record<string, string>> {
  const root = open<Buffer, string>({ ...TABLE, path, readOnly: true, noSubdir: false });
  try {
    const tables = TABLE_NAMES.map((name) => [name, rowsOf(root.openDB(name, TABLE) as Table)] as const);
    const components = tables.find(([name]) => name === "components")?.[1] ?? [];
    const names = new Map(components.map(([hash, bytes]) => [hash, contentHash(blotted(bytes))]));
    return Object.fromEntries(
      tables.map(([name, rows]) => [
        name,
        Object.fromEntries(
          rows.map(([key, bytes]) => {
            if (name === "components") return [names.get(key) ?? key, text(blotted(bytes))];
            if (LISTS.includes(name)) return [untimed(key), text(bytes)];
            const payload = blotted(bytes.subarray(SEAL), names);
            return [key.replace(WAITING, "$1…"), text(payload)];
          }),
        ),
      ]),
    );
  } finally {
    root.close();
  }
}

function rowsOf(table: Table): [string, Buffer][] {
  return [...table.getRange()].map(({ key, value }) => [key, Buffer.from(value)]);
}

/** A place in the order of a table: table, owner, time, session and key, with U+007F between them. */
function untimed(place: string): string {
  return place.replace(/^([^\u007f]*\u007f[^\u007f]*\u007f)[0-9a-f]{14}(?=\u007f)/, "$1…").replace(WAITING, "$1…");
}

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString("latin1");

/** The bytes as they are, unless something in them is drawn or measured. `names`: what components are called instead. */
function blotted(bytes: Uint8Array, names: ReadonlyMap<string, string> = new Map()): Uint8Array {
  let value: unknown;
  try {
    value = decode(bytes);
  } catch {
    return bytes; // An attachment, or what a code executor keeps.
  }
  const without = blot(value, names);
  return isDeepStrictEqual(without, value) ? bytes : encode(without);
}

function blot(value: unknown, names: ReadonlyMap<string, string>): unknown {
  if (typeof value === "string") return names.get(value) ?? value.replace(DRAWN, "…");
  if (value instanceof Uint8Array) return blotted(value, names);
  if (Array.isArray(value)) return value.map((item) => blot(item, names));
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => {
      // What was asked of a model has the ids of its calls, which are drawn.
      if (key === "hash" && "sequence" in value) return [key, "…"];
      if (key === "key" && "table" in value && String(value.table).startsWith("waiting")) return [key, "…"];
      if (MEASURED.has(key) && typeof item === "number") return [key, 0];
      // Of every operation a head remembers a number that is made of its name: how many there are is all that can be told.
      if (key === "receipts" && item instanceof Uint8Array) return [key, item.length];
      return [key, blot(item, names)];
    }),
  );
}
