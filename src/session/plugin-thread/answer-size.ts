import { TroupeError } from "../../kernel/index.js";
import { ANSWER_LIMITS } from "./bounded-answers.js";

interface Measured {
  values: number;
  characters: number;
  bytes: number;
}

const { isArray } = Array;
const { isView } = ArrayBuffer;
const { isAnyArrayBuffer, isMap, isSet } = process.getBuiltinModule("node:util").types;

/**
 * Why something is too much to leave a plugin's thread. Cloning it would cost the thread that sends it and the one that
 * reads it, which is everybody's; the one that reads it looks again, because this is said by the plugin's own thread.
 * What is not plain is not judged here. Undefined when it may leave.
 */
export function tooLarge(value: unknown, what: string): TroupeError | undefined {
  if (typeof value !== "object" || value === null) {
    if (typeof value !== "string" || value.length <= ANSWER_LIMITS.characters) return undefined;
    return refusal(what, `${ANSWER_LIMITS.characters} characters`);
  }
  const excess = measure(value, 0, { values: 0, characters: 0, bytes: 0 });
  return excess === undefined ? undefined : refusal(what, excess);
}

function refusal(what: string, excess: string): TroupeError {
  const message = `${what} has more than ${excess}, so it did not leave the plugin's thread. Send less of it, or send it in parts.`;
  return new TroupeError("answer_too_large", message, { details: { limit: excess } });
}

function measure(value: unknown, depth: number, sum: Measured): string | undefined {
  if (++sum.values > ANSWER_LIMITS.values) return VALUES;
  if (typeof value === "string") return characters(value.length, sum);
  if (typeof value !== "object" || value === null) return undefined;
  if (isView(value) || isAnyArrayBuffer(value)) {
    sum.bytes += value.byteLength;
    return sum.bytes > ANSWER_LIMITS.bytes ? `${ANSWER_LIMITS.bytes} bytes` : undefined;
  }
  if (depth > ANSWER_LIMITS.depth) return `${ANSWER_LIMITS.depth} levels`;
  if (isArray(value)) return measureList(value, depth, sum);
  if (isMap(value) || isSet(value)) return measureList([...value], depth, sum);
  for (const key in value) {
    const excess = characters(key.length, sum) ?? measure((value as Record<string, unknown>)[key], depth + 1, sum);
    if (excess !== undefined) return excess;
  }
  return undefined;
}

function measureList(list: readonly unknown[], depth: number, sum: Measured): string | undefined {
  // Looked at before the first element: of a sparse list the length is only a claim.
  if (list.length > ANSWER_LIMITS.values - sum.values) return VALUES;
  for (let at = 0; at < list.length; at++) {
    const excess = measure(list[at], depth + 1, sum);
    if (excess !== undefined) return excess;
  }
  return undefined;
}

function characters(count: number, sum: Measured): string | undefined {
  sum.characters += count;
  return sum.characters > ANSWER_LIMITS.characters ? `${ANSWER_LIMITS.characters} characters` : undefined;
}

const VALUES = `${ANSWER_LIMITS.values} values`;
