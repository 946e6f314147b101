import { type Json, TroupeError } from "../../kernel/index.js";

const MAX_DEPTH = 128;

/**
 * What a tool returned, as JSON: the value itself when it already is plain, a copy when something had to be said
 * another way (`toJSON`, undefined properties, NaN), as `JSON.stringify` would. What JSON would quietly lose (functions,
 * maps, class instances, bytes, cycles) is refused with `tool_result_unserialisable` and the path to it.
 *
 * @example
 * plainResult(undefined); // null
 * plainResult({ at: new Date(0) }); // { at: "1970-01-01T00:00:00.000Z" }
 * plainResult({ rows: new Map() }); // throws: rows is a Map
 */
export function plainResult(returned: unknown): Json {
  try {
    if (isPlain(returned, 0)) return returned;
    return plain(returned, "", 0) ?? null;
  } catch (thrown) {
    if (thrown instanceof TroupeError) throw thrown;
    // A getter or a toJSON of the tool's own.
    throw unserialisable("reading it failed", thrown);
  }
}

/** The usual case, without building paths or copies. */
function isPlain(value: unknown, depth: number): value is Json {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value === "boolean" || value === null) return true;
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value !== "object" || depth >= MAX_DEPTH) return false;
  if (Array.isArray(value)) {
    for (let i = 0; i < value.length; i++) if (!isPlain(value[i], depth + 1)) return false;
    return true;
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return false;
  for (const key of Object.keys(value)) {
    if (!key.isWellFormed() || !isPlain((value as Record<string, unknown>)[key], depth + 1)) return false;
  }
  return true;
}

/** The value said as JSON, or undefined where JSON would leave it out. */
function plain(value: unknown, path: string, depth: number): Json | undefined {
  switch (typeof value) {
    case "string":
      // Half of a surrogate pair would not survive being stored.
      return value.toWellFormed();
    case "boolean":
      return value;
    case "number":
      return Number.isFinite(value) ? value : null;
    case "undefined":
      return undefined;
    case "object":
      return value === null ? null : plainObject(value, path, depth);
    default:
      throw unserialisable(`${at(path)} is a ${typeof value}`);
  }
}

function plainObject(value: object, path: string, depth: number): Json | undefined {
  if (depth >= MAX_DEPTH) {
    throw unserialisable(`${at(path)} is nested deeper than ${MAX_DEPTH} levels or refers to itself`);
  }
  if (Array.isArray(value)) return Array.from(value, (item, i) => plain(item, `${path}[${i}]`, depth + 1) ?? null);
  // Bytes have a toJSON too, but nobody wants a list of a million numbers in a prompt.
  const bytes = ArrayBuffer.isView(value) || value instanceof ArrayBuffer;
  if (!bytes && "toJSON" in value && typeof value.toJSON === "function") return plain(value.toJSON(), path, depth + 1);
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    throw unserialisable(`${at(path)} is a ${value.constructor?.name ?? "class instance"}`);
  }
  const entries = Object.entries(value)
    .map(([key, held]) => [key.toWellFormed(), plain(held, path === "" ? key : `${path}.${key}`, depth + 1)] as const)
    .filter((entry): entry is readonly [string, Json] => entry[1] !== undefined);
  return Object.fromEntries(entries);
}

function at(path: string): string {
  return path === "" ? "it" : path;
}

function unserialisable(why: string, cause?: unknown): TroupeError {
  return new TroupeError(
    "tool_result_unserialisable",
    `The tool's result is not plain data: ${why}. Tools return strings, numbers, booleans, null, arrays and plain objects.`,
    { cause },
  );
}
