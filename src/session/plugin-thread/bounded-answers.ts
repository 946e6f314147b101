/**
 * How much a plugin may say at once. An answer is walked with these bounds before anything else reads it: a list that
 * only claims a length, a value that refers to itself or a flood of events costs its own call and no neighbour.
 */
export const ANSWER_LIMITS = {
  /** Nested levels; a stored record allows 128, and an answer is put into one. */
  depth: 100,
  /** Values of all kinds, counted over the whole answer. */
  values: 200_000,
  /** Characters of all texts and keys, and bytes. */
  characters: 16 * 1024 * 1024,
  /** Bytes that leave a plugin's thread with one answer, captured state included; a stored record is no larger. */
  bytes: 64 * 1024 * 1024,
  directives: 1_000,
  messages: 10_000,
  events: 10_000,
} as const;

interface Walk {
  values: number;
  characters: number;
}

/**
 * Why an answer cannot be taken: it is too much, or not plain data (JSON, dates and bytes). Undefined when it can.
 *
 * @example
 * unfitAnswer({ payload: 1n }); // "payload is a bigint; answers are plain JSON"
 */
export function unfitAnswer(answer: unknown): string | undefined {
  return unfit(answer, "", 0, { values: 0, characters: 0 });
}

function unfit(value: unknown, path: string, depth: number, walk: Walk): string | undefined {
  if (++walk.values > ANSWER_LIMITS.values) return tooMany();
  switch (typeof value) {
    case "string":
      return tooLong(walk, value.length);
    case "bigint":
    case "function":
    case "symbol":
      return `${path || "the answer"} is a ${typeof value}; answers are plain JSON`;
    case "object":
      break;
    default:
      return undefined;
  }
  if (value === null || value instanceof Date) return undefined;
  if (value instanceof Uint8Array) return tooLong(walk, value.byteLength);
  if (depth >= ANSWER_LIMITS.depth)
    return `the answer is nested deeper than ${ANSWER_LIMITS.depth} levels or refers to itself`;
  return Array.isArray(value) ? unfitList(value, path, depth, walk) : unfitRecord(value, path, depth, walk);
}

function unfitList(list: readonly unknown[], path: string, depth: number, walk: Walk): string | undefined {
  // Looked at before the first element: of a sparse list the length is only a claim.
  if (list.length > ANSWER_LIMITS.values - walk.values) return tooMany();
  for (let at = 0; at < list.length; at++) {
    const problem = unfit(list[at], `${path}[${at}]`, depth + 1, walk);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function unfitRecord(value: object, path: string, depth: number, walk: Walk): string | undefined {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null)
    return `${path || "the answer"} is a ${value.constructor?.name ?? "class instance"}; answers are plain JSON`;
  for (const key in value) {
    if (key === "__proto__") return `${path || "the answer"} has a key __proto__`;
    const problem =
      tooLong(walk, key.length) ??
      unfit((value as Record<string, unknown>)[key], path === "" ? key : `${path}.${key}`, depth + 1, walk);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

function tooMany(): string {
  return `the answer has more than ${ANSWER_LIMITS.values} values`;
}

function tooLong(walk: Walk, characters: number): string | undefined {
  walk.characters += characters;
  return walk.characters > ANSWER_LIMITS.characters
    ? `the answer has more than ${ANSWER_LIMITS.characters} characters`
    : undefined;
}
