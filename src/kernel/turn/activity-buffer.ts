import type { Activity } from "./activity.js";

/** Two neighbouring deltas of one block are one longer delta. */
export function joinDeltas(first: Activity, second: Activity): Activity | undefined {
  if (first.type !== "text_delta" && first.type !== "reasoning_delta") return undefined;
  if (second.type !== first.type || second.blockId !== first.blockId) return undefined;
  return { ...first, text: first.text + second.text };
}

export interface BufferRules<T> {
  /** Two neighbours as one entry; undefined: they stay two. */
  readonly join: (last: T, next: T) => T | undefined;
  /** The most entries that are kept. Default: any number. */
  readonly limit?: number;
  /** How many of the newest stay when there are more than `limit`. Default: `limit`. */
  readonly keep?: number;
  /** Made of how many entries were given up and the last of them, and read in their place. Default: nothing is. */
  readonly gap?: (missed: number, last: T) => T;
}

/** For a reader of a turn's activities: it is told how many it missed. */
export function activitiesUpTo(limit: number): BufferRules<Activity> {
  return { join: joinDeltas, limit, gap: (missed) => ({ type: "gap", missed }) };
}

/** Entries nobody has read yet. Writing never waits for a reader: neighbours join, and past a limit the oldest go. */
export class ActivityBuffer<T> {
  readonly #rules: BufferRules<T>;
  #entries: T[] = [];
  #missed = 0;
  #lastMissed: T | undefined;

  constructor(rules: BufferRules<T>) {
    this.#rules = rules;
  }

  get entries(): readonly T[] {
    return this.#entries;
  }

  push(next: T): void {
    const entries = this.#entries;
    const { join, limit = Number.POSITIVE_INFINITY, keep = limit } = this.#rules;
    const last = entries[entries.length - 1];
    const joined = last === undefined ? undefined : join(last, next);
    if (joined === undefined) entries.push(next);
    else entries[entries.length - 1] = joined;
    if (entries.length <= limit) return;
    for (; entries.length > keep; this.#missed++) this.#lastMissed = entries.shift();
  }

  /** Takes the oldest entry, or the gap before it. */
  shift(): T | undefined {
    return this.#takeGap() ?? this.#entries.shift();
  }

  /** Takes everything, the gap first. */
  takeAll(): T[] {
    const gap = this.#takeGap();
    const taken = this.#entries;
    this.#entries = [];
    return gap === undefined ? taken : [gap, ...taken];
  }

  #takeGap(): T | undefined {
    const { gap } = this.#rules;
    const last = this.#lastMissed;
    if (gap === undefined || last === undefined) return undefined;
    const missed = this.#missed;
    this.#missed = 0;
    this.#lastMissed = undefined;
    return gap(missed, last);
  }
}
