import { refusal, TroupeError } from "../errors.js";
import { isRecord } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";
import type { Usage, UsageReport } from "./usage.js";

/** What a session may spend, in all its turns, its children and direct completions together. */
export interface SessionBudget {
  readonly maxTokens?: number;
  /** In the currency of the runtime's `prices`. */
  readonly maxCost?: number;
  /**
   * What happens to a turn that wants another model call when it is spent. `stop` (default): it ends with the reason
   * `budget`. `pause`: it waits until the budget is raised, or it is cancelled.
   */
  readonly whenSpent?: "stop" | "pause";
}

/** What a million tokens of a model cost. Reading and writing the cache cost as much as input unless said otherwise. */
export interface ModelPrice {
  readonly input: number;
  readonly output: number;
  readonly cacheRead?: number;
  readonly cacheWrite?: number;
}

/** By model id. */
export type ModelPrices = Readonly<Record<string, ModelPrice>>;

/** What has been spent. Models without a price cost nothing, and are named. */
export interface Spent {
  readonly tokens: number;
  readonly cost: number;
  readonly unpriced: readonly string[];
}

/** What a session has spent, and what it may. */
export interface SpendingReport extends Spent {
  readonly budget: SessionBudget | null;
  /** How much of what its models read came from a cache, at the price of `cacheRead`. */
  readonly cache: UsageReport["cache"];
}

/**
 * @example
 * spentOf([{ model: "small", usage: { ...NO_USAGE, inputTokens: 500_000 } }], { small: { input: 2, output: 8 } });
 * // { tokens: 500000, cost: 1, unpriced: [] }
 */
export function spentOf(
  ledger: readonly { readonly model: string; readonly usage: Usage }[],
  prices: ModelPrices,
): Spent {
  let tokens = 0;
  let cost = 0;
  const unpriced = new Set<string>();
  for (const { model, usage } of ledger) {
    const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens } = usage;
    // Input counts what came from and went into a cache.
    const all = inputTokens + outputTokens;
    tokens += all;
    const price = Object.hasOwn(prices, model) ? prices[model] : undefined;
    if (price === undefined) {
      if (all > 0) unpriced.add(model);
      continue;
    }
    const { input, output, cacheRead = input, cacheWrite = input } = price;
    const uncached = Math.max(0, inputTokens - cacheReadTokens - cacheWriteTokens);
    const perMillion =
      uncached * input + outputTokens * output + cacheReadTokens * cacheRead + cacheWriteTokens * cacheWrite;
    cost += perMillion / 1_000_000;
  }
  return { tokens, cost, unpriced: [...unpriced].sort() };
}

/** Why there is nothing left to spend; undefined while there is. */
export function whySpent({ maxTokens, maxCost }: SessionBudget, { tokens, cost }: Spent): string | undefined {
  if (maxTokens !== undefined && tokens >= maxTokens)
    return `The session has spent ${tokens} of its ${maxTokens} tokens.`;
  if (maxCost !== undefined && cost >= maxCost) return `The session has spent ${cost} of its ${maxCost}.`;
  return undefined;
}

/** There is nothing left to pay a call with. */
export function budgetSpent(why: string): TroupeError {
  return new TroupeError("budget_spent", why);
}

/** What is left of a budget, as a budget of its own. */
export function remainingBudget(budget: SessionBudget, { tokens, cost }: Spent): SessionBudget {
  const { maxTokens, maxCost } = budget;
  return {
    ...budget,
    ...(maxTokens !== undefined && { maxTokens: Math.max(0, maxTokens - tokens) }),
    ...(maxCost !== undefined && { maxCost: Math.max(0, maxCost - cost) }),
  };
}

/** The narrower of two budgets, limit by limit; no budget (null) limits nothing. */
export function narrowBudget(own: SessionBudget | null, cap: SessionBudget): SessionBudget {
  const maxTokens = Math.min(own?.maxTokens ?? Number.POSITIVE_INFINITY, cap.maxTokens ?? Number.POSITIVE_INFINITY);
  const maxCost = Math.min(own?.maxCost ?? Number.POSITIVE_INFINITY, cap.maxCost ?? Number.POSITIVE_INFINITY);
  return {
    ...cap,
    ...(Number.isFinite(maxTokens) && { maxTokens }),
    ...(Number.isFinite(maxCost) && { maxCost }),
  };
}

const BUDGET_FIELDS: FieldsOf<SessionBudget> = { maxTokens: true, maxCost: true, whenSpent: true };

/** A budget from outside, checked: `invalid_budget` says what is wrong. */
export function checkBudget(budget: unknown): SessionBudget {
  if (!isRecord(budget)) throw invalidBudget("it is an object with maxTokens or maxCost");
  const unknown = unknownField(budget, BUDGET_FIELDS, "budget", "option");
  if (unknown !== undefined) throw invalidBudget(unknown);
  const { maxTokens, maxCost, whenSpent } = budget;
  if (maxTokens === undefined && maxCost === undefined) throw invalidBudget("it needs maxTokens or maxCost");
  if (maxTokens !== undefined && !(Number.isSafeInteger(maxTokens) && (maxTokens as number) >= 0))
    throw invalidBudget("maxTokens is a whole number from 0");
  if (maxCost !== undefined && !isAmount(maxCost)) throw invalidBudget("maxCost is a number from 0");
  if (whenSpent !== undefined && whenSpent !== "stop" && whenSpent !== "pause")
    throw invalidBudget('whenSpent is "stop" or "pause"');
  return budget as SessionBudget;
}

const PRICE_FIELDS: FieldsOf<ModelPrice> = { input: true, output: true, cacheRead: true, cacheWrite: true };

/** Prices from outside, checked. */
export function checkPrices(prices: unknown): ModelPrices {
  if (!isRecord(prices)) throw invalidBudget("prices are an object by model id");
  if (isAmount(prices.input) || isAmount(prices.output))
    throw invalidBudget('prices are by model id: { "gpt-5": { input: 1.25, output: 10 } }');
  for (const [model, price] of Object.entries(prices)) {
    const unknown = isRecord(price) ? unknownField(price, PRICE_FIELDS, `the price of ${model}`) : undefined;
    if (unknown !== undefined) throw invalidBudget(unknown);
    const { input, output, cacheRead = 0, cacheWrite = 0 } = isRecord(price) ? price : {};
    if (![input, output, cacheRead, cacheWrite].every(isAmount))
      throw invalidBudget(`the price of ${model} needs numbers from 0 for input and output`);
  }
  return prices as ModelPrices;
}

function isAmount(value: unknown): boolean {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

export const invalidBudget = refusal("invalid_budget", "The budget cannot be used");
