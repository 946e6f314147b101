import { isRecord } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import { checkBudget, invalidBudget, type SessionBudget } from "./budget.js";

/** What all sessions of a tenant may spend together in a period, their children and direct completions included. */
export interface TenantBudget extends SessionBudget {
  /** A calendar day or month in UTC, or so many milliseconds, counted from 1970 on. */
  readonly period: "day" | "month" | { readonly ms: number };
}

/** One period of a budget, from `start` to before `end`, in milliseconds since 1970. */
export interface BudgetPeriod {
  /** Names it: `day:2026-11-18`. */
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

/** What was spent, as a tenant's row counts it. */
export interface TenantSpent {
  readonly tokens: number;
  readonly cost: number;
}

export const NOTHING_SPENT: TenantSpent = Object.freeze({ tokens: 0, cost: 0 });

/** What a tenant has spent in the period that is now, and what it may. */
export interface TenantSpendingReport extends TenantSpent {
  readonly tenant: string;
  /** Null: it has none, and nothing is counted. */
  readonly budget: TenantBudget | null;
  readonly period: BudgetPeriod | null;
}

/**
 * @example
 * periodAt("month", Date.UTC(2026, 10, 18)); // { name: "month:2026-11-01", start: Date.UTC(2026, 10, 1), end: Date.UTC(2026, 11, 1) }
 */
export function periodAt(period: TenantBudget["period"], at: number): BudgetPeriod {
  if (typeof period === "object") {
    const start = Math.floor(at / period.ms) * period.ms;
    return { name: `${period.ms}:${start}`, start, end: start + period.ms };
  }
  const date = new Date(at);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  const day = period === "day" ? date.getUTCDate() : 1;
  const start = Date.UTC(year, month, day);
  const end = period === "day" ? Date.UTC(year, month, day + 1) : Date.UTC(year, month + 1, 1);
  return { name: `${period}:${new Date(start).toISOString().slice(0, 10)}`, start, end };
}

/** Why a tenant has nothing left in a period; undefined while it has. */
export function whyTenantSpent(
  { maxTokens, maxCost }: TenantBudget,
  { tokens, cost }: TenantSpent,
  { tenant, end }: { readonly tenant: string; readonly end: number },
): string | undefined {
  const until = `until ${new Date(end).toISOString()}`;
  if (maxTokens !== undefined && tokens >= maxTokens)
    return `Tenant ${tenant} has spent ${tokens} of its ${maxTokens} tokens ${until}.`;
  if (maxCost !== undefined && cost >= maxCost) return `Tenant ${tenant} has spent ${cost} of its ${maxCost} ${until}.`;
  return undefined;
}

const FIELDS: FieldsOf<TenantBudget> = { maxTokens: true, maxCost: true, whenSpent: true, period: true };
/** Ten years: what a date can be in for any period from now on. */
const MAX_PERIOD_MS = 3_660 * 24 * 3_600_000;

/** A tenant's budget from outside, checked: `invalid_budget` says what is wrong. */
export function checkTenantBudget(budget: unknown): TenantBudget {
  if (!isRecord(budget)) throw invalidBudget("it is an object with a period and maxTokens or maxCost");
  const unknown = unknownField(budget, FIELDS, "budget", "option");
  if (unknown !== undefined) throw invalidBudget(unknown);
  const { period, ...limits } = budget;
  checkBudget(limits);
  if (period === "day" || period === "month") return budget as unknown as TenantBudget;
  const ms = isRecord(period) && Object.keys(period).length === 1 ? period.ms : undefined;
  if (!Number.isInteger(ms) || (ms as number) < 1_000 || (ms as number) > MAX_PERIOD_MS)
    throw invalidBudget(
      `its period is "day", "month" or { ms }, from 1,000 to ten years, not ${JSON.stringify(period)}`,
    );
  return budget as unknown as TenantBudget;
}
