/** What tools, hooks and models exchange: anything JSON can say. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };
export type JsonObject = { readonly [key: string]: Json };

/** Do two values say the same? The order of an object's keys says nothing. */
export function sameJson(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [one, other] = [a as JsonObject, b as JsonObject];
  const keys = Object.keys(one);
  if (keys.length !== Object.keys(other).length) return false;
  return keys.every((key) => Object.hasOwn(other, key) && sameJson(one[key], other[key]));
}

/** The fields that have a value. */
export function definedOnly<T extends object>(fields: T): { [F in keyof T]?: Exclude<T[F], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as typeof fields;
}

/** Is this an object with fields, and not a list? What comes from outside is looked at before it is believed. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * The value with every half of a surrogate pair replaced by U+FFFD; the same object when there is none, as there mostly
 * is. UTF-8 has no halves, so text that is kept as it came would read otherwise when its session is opened again.
 *
 * @example
 * wellFormed({ text: "cut \ud83d" }); // { text: "cut \ufffd" }
 */
export function wellFormed<T>(value: T): T {
  try {
    return isWhole(value) ? value : (formed(value) as T);
  } catch {
    // It refers to itself, or is nested beyond reason: it cannot be stored, and whoever tries is told so.
    return value;
  }
}

/** The usual case, without a copy of anything: every message of every turn passes here. */
function isWhole(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value !== "object" || value === null) return true;
  if (Array.isArray(value)) return value.every(isWhole);
  if (!isPlainObject(value)) return true;
  for (const key in value) if (!key.isWellFormed() || !isWhole((value as Record<string, unknown>)[key])) return false;
  return true;
}

function formed(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(formed);
  // Bytes and dates have no text.
  if (!isRecord(value) || !isPlainObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key.toWellFormed(), formed(item)]));
}

function isPlainObject(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
