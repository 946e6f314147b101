import type { Json } from "../json.js";

/** A value in words: a string is its own, anything else is compact JSON. */
export function wordsOf(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}
