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

export function isZeroUsage(usage: Usage): boolean {
  return COUNTERS.every((counter) => usage[counter] === 0);
}

/** What `a` counts beyond `b`. */
export function subtractUsage(a: Usage, b: Usage): Usage {
  return sumOf(a, b, -1);
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

/** How much of what models read came from their providers' caches. */
export interface CacheUse {
  readonly inputTokens: number;
  /** Of `inputTokens`, those read from a cache: `cacheReadTokens` of a {@link Usage}. */
  readonly cachedInputTokens: number;
  /** `cachedInputTokens` of `inputTokens`, from 0 to 1; 0 when nothing was read. */
  readonly cacheReadShare: number;
}

/**
 * @example
 * cacheUse({ ...NO_USAGE, inputTokens: 1_000, cacheReadTokens: 900 }).cacheReadShare; // 0.9
 */
export function cacheUse({ inputTokens, cacheReadTokens }: Usage): CacheUse {
  const cacheReadShare = inputTokens === 0 ? 0 : Math.min(1, cacheReadTokens / inputTokens);
  return { inputTokens, cachedInputTokens: cacheReadTokens, cacheReadShare };
}

function sumOf(a: Usage, b: Usage, sign = 1): Usage {
  return {
    inputTokens: a.inputTokens + sign * b.inputTokens,
    outputTokens: a.outputTokens + sign * b.outputTokens,
    cacheReadTokens: a.cacheReadTokens + sign * b.cacheReadTokens,
    cacheWriteTokens: a.cacheWriteTokens + sign * b.cacheWriteTokens,
    reasoningTokens: a.reasoningTokens + sign * b.reasoningTokens,
  };
}

function overflow(counter: keyof Usage, of: Readonly<Record<string, string>> = {}): TroupeError {
  return new TroupeError("token_usage_overflow", `There are more ${counter} than can be counted.`, {
    details: { ...of, counter },
  });
}

/** What one source has spent on one model. */
export interface LedgerEntry {
  /** {@link OWN_SOURCE} for the session's own turns, otherwise the label of a direct completion or a child. */
  readonly source: string;
  /** The model's id. */
  readonly model: string;
  readonly usage: Usage;
}

/** Everything a session has spent: one entry for each source and model, none that is zero. */
export type Ledger = readonly LedgerEntry[];

/** The source of the session's own model calls. */
export const OWN_SOURCE = "turn";
/** Stands where it was not written down which model was paid: in heads that older versions stored. */
export const UNKNOWN_MODEL = "unknown";

/** The ledger with an entry more, or with more in the entry of its source and model; itself when nothing was spent. */
export function addEntry(ledger: Ledger, { source, model, usage }: LedgerEntry): Ledger {
  if (isZeroUsage(usage)) return ledger;
  const at = ledger.findIndex((entry) => entry.source === source && entry.model === model);
  if (at < 0) return [...ledger, { source, model, usage }];
  const before = ledger[at] as LedgerEntry;
  return ledger.with(at, { source, model, usage: addUsage(before.usage, usage, { source, model }) });
}

/** Both together; `a` itself when `b` has nothing. */
export function addLedgers(a: Ledger, b: Ledger): Ledger {
  return b.reduce(addEntry, a);
}

/** What `all` has beyond `counted`, which is an earlier state of it. */
export function ledgerSince(all: Ledger, counted: Ledger): Ledger {
  if (all === counted) return [];
  return all.flatMap((entry) => {
    const done = counted.find(({ source, model }) => source === entry.source && model === entry.model);
    const usage = done === undefined ? entry.usage : subtractUsage(entry.usage, done.usage);
    return isZeroUsage(usage) ? [] : [{ ...entry, usage }];
  });
}

/**
 * The ledger of a stored head, whatever version wrote it: first there was none, then one by source alone and without the
 * session's own calls. Those stood in the head's `usage` only; of what model they were nobody wrote down.
 */
export function ledgerOf({ usage, ledger }: { readonly usage: Usage; readonly ledger?: unknown }): Ledger {
  if (Array.isArray(ledger)) return ledger;
  const bySource = Object.entries((ledger ?? {}) as Readonly<Record<string, Usage>>);
  return [[OWN_SOURCE, usage] as const, ...bySource].reduce<Ledger>(
    (sum, [source, spent]) => addEntry(sum, { source, model: UNKNOWN_MODEL, usage: spent }),
    [],
  );
}

/**
 * The same ledger with `usage` itself in the session's own entry, where both say the same, as they do while a session
 * keeps to one model: what crosses a thread is then copied once.
 */
export function sharingOwn(ledger: Ledger, usage: Usage): Ledger {
  const at = ledger.findIndex((entry) => entry.source === OWN_SOURCE);
  const own = ledger[at];
  if (own === undefined || !isZeroUsage(subtractUsage(own.usage, usage))) return ledger;
  return ledger.with(at, { ...own, usage });
}

/** A ledger added up every way somebody may ask for. */
export interface UsageReport {
  readonly total: Usage;
  readonly bySource: Readonly<Record<string, Usage>>;
  readonly byModel: Readonly<Record<string, Usage>>;
  readonly bySourceModel: Ledger;
  /** What came from providers' caches, in total and by model. */
  readonly cache: CacheUse & { readonly byModel: Readonly<Record<string, CacheUse>> };
  /** A sum was too much to be counted exactly and stands at the most there is. */
  readonly saturated: boolean;
}

/**
 * Adds a ledger up: in total, by source, by model.
 *
 * @example
 * const { total, bySource } = usageReport((await session.view()).ledger);
 * console.log(total.inputTokens, bySource.turn?.outputTokens);
 */
export function usageReport(ledger: Ledger): UsageReport {
  let saturated = false;
  const sumBy = (keyOf: (entry: LedgerEntry) => string): ReadonlyMap<string, Usage> => {
    const sums = new Map<string, Usage>();
    for (const entry of ledger) {
      const sum = addUsageSaturating(sums.get(keyOf(entry)) ?? NO_USAGE, entry.usage);
      saturated ||= sum.saturated;
      sums.set(keyOf(entry), sum.usage);
    }
    return sums;
  };
  const total = sumBy(() => "").get("") ?? NO_USAGE;
  // Not by assignment: a source may be named as it likes, `__proto__` included.
  const bySource = Object.fromEntries(sumBy(({ source }) => source));
  const byModel = Object.fromEntries(sumBy(({ model }) => model));
  const cachedByModel = Object.fromEntries(Object.entries(byModel).map(([model, usage]) => [model, cacheUse(usage)]));
  const cache = { ...cacheUse(total), byModel: cachedByModel };
  return { total, bySource, byModel, bySourceModel: ledger, cache, saturated };
}
