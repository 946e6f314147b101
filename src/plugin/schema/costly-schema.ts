import { isRecord, type Json, type JsonObject } from "../../kernel/index.js";
import { isPlainSchema } from "./plain-schema.js";

const judged = new WeakMap<JsonObject, boolean>();

/**
 * Whether checking a value by this schema can take far longer than reading the value: a regular expression may try
 * again and again, `uniqueItems` compares each item with each, and several references may lead to one value over and
 * over. True says only that somebody has to mind the time.
 *
 * @example
 * isCostlySchema({ type: "object", properties: { code: { type: "string", pattern: "^(a+)+$" } } }); // true
 */
export function isCostlySchema(schema: JsonObject): boolean {
  let costly = judged.get(schema);
  if (costly === undefined) {
    costly = !isPlainSchema(schema) && hasCostlyKeyword(schema);
    judged.set(schema, costly);
  }
  return costly;
}

/** Looks at every object in the schema, wherever it stands: what a reference leads to stands somewhere as well. */
function hasCostlyKeyword(schema: JsonObject): boolean {
  let references = 0;
  const left: Json[] = [schema];
  for (let part = left.pop(); part !== undefined; part = left.pop()) {
    if (Array.isArray(part)) left.push(...part);
    if (!isRecord(part)) continue;
    if (typeof part.pattern === "string" || isRecord(part.patternProperties) || part.uniqueItems === true) return true;
    for (const name of REFERENCES) if (typeof part[name] === "string" && ++references > 1) return true;
    for (const value of Object.values(part)) if (typeof value === "object" && value !== null) left.push(value as Json);
  }
  return false;
}

/** One reference alone goes once through a value, as deep as the value is. */
const REFERENCES = ["$ref", "$dynamicRef", "$recursiveRef"] as const;
