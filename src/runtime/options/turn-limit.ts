import { definedOnly } from "../../kernel/index.js";
import type { TurnLimit } from "../../session/index.js";

/** A turn's time limit, as runtime and turn say it. */
export interface TurnLimitOptions {
  readonly deadlineMs?: number | null;
  readonly deadlineCountsWaiting?: boolean;
  readonly deadlineKeepsPartial?: boolean;
}

/** What is wrong with it; undefined: nothing. */
export function turnLimitProblem({
  deadlineMs,
  deadlineCountsWaiting,
  deadlineKeepsPartial,
}: TurnLimitOptions): string | undefined {
  if (deadlineMs !== undefined && deadlineMs !== null && !(Number.isSafeInteger(deadlineMs) && deadlineMs >= 1))
    return "deadlineMs is a whole number of milliseconds from 1, or null";
  for (const [name, flag] of Object.entries({ deadlineCountsWaiting, deadlineKeepsPartial }))
    if (flag !== undefined && typeof flag !== "boolean") return `${name} is true or false`;
  return undefined;
}

export function turnLimitOf({
  deadlineMs,
  deadlineCountsWaiting: countsWaiting,
  deadlineKeepsPartial: keepsPartial,
}: TurnLimitOptions): Partial<TurnLimit> {
  return definedOnly({ deadlineMs, countsWaiting, keepsPartial });
}

/** For every turn that says nothing else. */
export const NO_TURN_LIMIT: TurnLimit = { deadlineMs: null, countsWaiting: false, keepsPartial: true };
