import { TroupeError } from "../errors.js";

/**
 * Token counts of one or more model calls. What was read from and written to a cache is a part of `inputTokens`, and
 * `reasoningTokens` of `outputTokens`: neither is added to it.
 */
export interface Usage {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cacheReadTokens: number;
  readonly cacheWriteTokens: number;
  readonly reasoningTokens: number;
}

export const NO_USAGE: Usage = Object.freeze({
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
});

const COUNTERS = Object.keys(NO_USAGE) as readonly (keyof Usage)[];

export function isZeroUsage({
  inputTokens,
  outputTokens,
  cacheReadTokens,
  cacheWriteTokens,
  reasoningTokens,
}: Usage): boolean {
  return (inputTokens || outputTokens || cacheReadTokens || cacheWriteTokens || reasoningTokens) === 0;
}

/** What `a` counts beyond `b`. */
export function subtractUsage(a: Usage, b: Usage): Usage {
  return {
    inputTokens: a.inputTokens - b.inputTokens,
    outputTokens: a.outputTokens - b.outputTokens,
    cacheReadTokens: a.cacheReadTokens - b.cacheReadTokens,
    cacheWriteTokens: a.cacheWriteTokens - b.cacheWriteTokens,
    reasoningTokens: a.reasoningTokens - b.reasoningTokens,
  };
}

/** Both together. A sum that a number cannot hold exactly throws `token_usage_overflow`, naming the counter and `of`. */
export function addUsage(a: Usage, b: Usage, of: Readonly<Record<string, string>> = {}): Usage {
  const sum = sumOf(a, b);
  for (const counter of COUNTERS) if (sum[counter] > Number.MAX_SAFE_INTEGER) throw overflow(counter, of);
  return sum;
}

/** Both together for a report, which must not fail: what is too much stays at the most a number can hold. */
export function addUsageSaturating(a: Usage, b: Usage): { readonly usage: Usage; readonly saturated: boolean } {
  const sum = sumOf(a, b);
  const saturated = COUNTERS.some((counter) => sum[counter] > Number.MAX_SAFE_INTEGER);
  if (!saturated) return { usage: sum, saturated };
  const capped = COUNTERS.map((counter) => [counter, Math.min(sum[counter], Number.MAX_SAFE_INTEGER)]);
  return { usage: Object.fromEntries(capped) as Record<keyof Usage, number>, saturated };
}

/**
 * Counts from a provider, before anything is done with them: whole numbers from 0 (`token_usage_invalid`) that can be
 * counted exactly, the whole call and the cached part of its prompt included (`token_usage_overflow`).
 */
export function checkUsage(usage: Usage): void {
  for (const counter of COUNTERS) {
    const count: unknown = usage?.[counter];
    if (Number.isSafeInteger(count) && (count as number) >= 0) continue;
    if (typeof count === "number" && count > Number.MAX_SAFE_INTEGER) throw overflow(counter);
    const message = `The model reported ${counter} that are no count: ${JSON.stringify(count) ?? "undefined"}.`;
    throw new TroupeError("token_usage_invalid", message, { details: { counter } });
  }
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens } = usage;
  if (cacheReadTokens + cacheWriteTokens > Number.MAX_SAFE_INTEGER) throw overflow("cacheWriteTokens");
  if (inputTokens + outputTokens > Number.MAX_SAFE_INTEGER) throw overflow("outputTokens");
}

function sumOf(a: Usage, b: Usage): Usage {
  return {
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    cacheReadTokens: a.cacheReadTokens + b.cacheReadTokens,
    cacheWriteTokens: a.cacheWriteTokens + b.cacheWriteTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
  };
}

function overflow(counter: keyof Usage, of: Readonly<Record<string, string>> = {}): TroupeError {
  return new TroupeError("token_usage_overflow", `There are more ${counter} than can be counted.`, {
    details: { ...of, counter },
  });
}
