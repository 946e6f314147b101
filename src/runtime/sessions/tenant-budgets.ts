import { deferred } from "../../async/index.js";
import {
  type BudgetPeriod,
  checkTenantBudget,
  checkTenantName,
  invalidOptions,
  NOTHING_SPENT,
  numbersIn,
  periodAt,
  Reservations,
  sumOfSpent,
  type TenantBudget,
  type TenantSpendingReport,
  type TenantSpent,
  whyTenantSpent,
} from "../../kernel/index.js";
import type { TenantAnswer, TenantAsk } from "../../session/index.js";
import { TENANT_BUDGETS, TENANT_SPENDING, tenantRowKey } from "../../store/index.js";
import { decode, encode } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";

/** Tenants whose budgets are kept in memory; of more, all are asked for anew. */
const MAX_KNOWN = 10_000;

/** What a turn has spent, and how much of that in periods before this one: it does not keep the turn from going on. */
interface Unstored {
  readonly period: string;
  readonly spent: TenantSpent;
  readonly before: TenantSpent;
  /** It is being stored: the row may have it by now, or not yet. */
  readonly isCommitting?: true;
}

/** What of a tenant is under way in this process and in no row yet, by session or completion. */
interface UnderWay {
  /** Spent by turns that are not stored. */
  readonly unstored: Map<string, Unstored>;
  /** Set aside for calls that have begun. */
  readonly reserved: Reservations;
  /** Calls that may be begun once others have ended. */
  readonly waiting: Set<() => void>;
  /** The period that was told to be spent, once. */
  told: string | undefined;
}

/**
 * The budgets of tenants: whether another model call may begin. What is stored is read with every question, so that it is
 * exact whoever wrote it; what runs in this process and is not stored yet is kept here.
 */
export class TenantBudgets {
  readonly #runtime: Runtime;
  readonly #known = new Map<string, TenantBudget | null>();
  readonly #underWay = new Map<string, UnderWay>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** May a call begin? Reserves what a call costs on average, until `paid` or `ended` says what it did. */
  async admit({ tenant, id, unstored }: TenantAsk): Promise<TenantAnswer> {
    for (;;) {
      const budget = await this.#budgetOf(tenant);
      if (budget === null) return { kind: "unlimited" };
      const period = this.#periodOf(budget);
      const stored = await this.#stored(tenant, period);
      // Nothing awaits from here on: no other call is let in by the same sum.
      const here = this.#here(tenant);
      const known = here.unstored.get(id);
      const before = known === undefined || known.period === period.name ? known?.before : known.spent;
      here.unstored.set(id, { period: period.name, spent: unstored, before: before ?? NOTHING_SPENT });
      here.reserved.release(id);
      const named = { tenant, end: period.end };
      const settled = sumOfSpent([stored, ...unstoredIn(here, period, { committing: false })]);
      const spent = sumOfSpent([settled, ...unstoredIn(here, period, { committing: true })]);
      const why = whyTenantSpent(budget, settled, named);
      // Only what is being stored right now decides it: a moment later it is known.
      const isUncertain = why === undefined && whyTenantSpent(budget, spent, named) !== undefined;
      if (why !== undefined) {
        this.#tellSpent(tenant, here, { budget, period, spent });
        return { kind: "spent", why, whenSpent: budget.whenSpent ?? "stop", end: period.end };
      }
      const expected = sumOfSpent([spent, ...here.reserved.all]);
      const fits = here.reserved.size === 0 || whyTenantSpent(budget, expected, named) === undefined;
      if (fits && !isUncertain) {
        here.reserved.reserve(id);
        return { kind: "go", period };
      }
      // What is under way may use up the rest: who comes now waits for what it comes to.
      const ended = deferred();
      here.waiting.add(ended.resolve);
      await ended.promise;
    }
  }

  /** A call has ended: what it cost, and what its turn has spent by now. */
  paid({ tenant, id, unstored, cost }: TenantAsk & { readonly cost: TenantSpent }): void {
    const here = this.#underWay.get(tenant);
    if (here === undefined) return;
    here.reserved.paid(cost);
    const known = here.unstored.get(id);
    if (known !== undefined) here.unstored.set(id, { ...known, spent: unstored });
    here.reserved.release(id);
    wake(here);
  }

  /** A turn is stored, or came to nothing. */
  ended({ tenant, id }: Pick<TenantAsk, "tenant" | "id">): void {
    const here = this.#underWay.get(tenant);
    if (here === undefined) return;
    here.unstored.delete(id);
    here.reserved.release(id);
    wake(here);
  }

  /** The sessions of a worker that died have no calls under way; what their turns have spent is spent. */
  released(sessionIds: ReadonlySet<string>): void {
    for (const here of this.#underWay.values()) {
      for (const id of here.reserved.ids) if (sessionIds.has(ownerOf(id))) here.reserved.release(id);
      for (const [id, { isCommitting }] of [...here.unstored])
        if (isCommitting && sessionIds.has(ownerOf(id))) here.unstored.delete(id);
      wake(here);
    }
  }

  /** A turn is about to be stored, and counted in the period this gives, until `ended`. */
  async committing({ tenant, id }: Pick<TenantAsk, "tenant" | "id">): Promise<BudgetPeriod | null> {
    const budget = await this.#budgetOf(tenant);
    const here = this.#underWay.get(tenant);
    const known = here?.unstored.get(id);
    if (known !== undefined) here?.unstored.set(id, { ...known, isCommitting: true });
    return budget && this.#periodOf(budget);
  }

  async spending(tenant: unknown): Promise<TenantSpendingReport> {
    const named = checkTenantName(tenant);
    this.#check();
    const budget = await this.#budgetOf(named);
    if (budget === null) return { tenant: named, ...NOTHING_SPENT, budget, period: null };
    const period = this.#periodOf(budget);
    const stored = await this.#stored(named, period);
    const here = this.#underWay.get(named);
    return {
      tenant: named,
      ...sumOfSpent([stored, ...(here ? unstoredIn(here, period, { committing: false }) : [])]),
      budget,
      period,
    };
  }

  /** Stored, and known to every session when it resolves. Undefined: as the runtime's options say again. */
  async set(tenant: unknown, budget: unknown): Promise<void> {
    const named = checkTenantName(tenant);
    this.#check();
    const given = budget === null || budget === undefined ? budget : checkTenantBudget(budget);
    const value = given === undefined ? null : encode({ budget: given });
    const { store, crew, options } = this.#runtime;
    await store.ask("changeRows", { changes: [{ table: TENANT_BUDGETS, key: named, value }] });
    this.#known.delete(named);
    const here = this.#underWay.get(named);
    if (here !== undefined) {
      here.told = undefined;
      wake(here);
    }
    await Promise.all(
      Array.from({ length: options.sessionWorkers }, (_, index) => crew.worker(index).tenantChanged(named)),
    );
  }

  #check(): void {
    this.#runtime.checkOpen();
    if (this.#runtime.options.worker.tenantBudgets) return;
    throw invalidOptions(
      "tenants have no budgets in this runtime. Switch them on: createTroupe({ tenantBudgets: {} })",
    );
  }

  async #budgetOf(tenant: string): Promise<TenantBudget | null> {
    const known = this.#known.get(tenant);
    if (known !== undefined) return known;
    const [row] = await this.#runtime.store.ask("rows", { table: TENANT_BUDGETS, prefix: tenant, limit: 1 });
    const stored = row?.key === tenant ? decode<{ readonly budget: TenantBudget | null }>(row.value) : undefined;
    const given = stored === undefined ? this.#runtime.options.tenantBudget?.(tenant) : stored.budget;
    const budget = given === undefined || given === null ? null : checkTenantBudget(given);
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    this.#known.set(tenant, budget);
    return budget;
  }

  #periodOf({ period }: TenantBudget): BudgetPeriod {
    return periodAt(period, this.#runtime.options.clock.wallNow());
  }

  async #stored(tenant: string, period: BudgetPeriod): Promise<TenantSpent> {
    const key = tenantRowKey(tenant, period);
    const [row] = await this.#runtime.store.ask("rows", { table: TENANT_SPENDING, prefix: key, limit: 1 });
    if (row?.key !== key) return NOTHING_SPENT;
    const [tokens = 0, cost = 0] = numbersIn(row);
    return { tokens, cost };
  }

  #here(tenant: string): UnderWay {
    const known = this.#underWay.get(tenant);
    if (known !== undefined) return known;
    this.#forgetIdle();
    const here: UnderWay = {
      unstored: new Map(),
      reserved: new Reservations(),
      waiting: new Set(),
      told: undefined,
    };
    this.#underWay.set(tenant, here);
    return here;
  }

  #forgetIdle(): void {
    if (this.#underWay.size < MAX_KNOWN) return;
    for (const [tenant, { unstored, reserved, waiting }] of this.#underWay)
      if (unstored.size + reserved.size + waiting.size === 0) this.#underWay.delete(tenant);
  }

  #tellSpent(
    tenant: string,
    here: UnderWay,
    { budget, period, spent }: { budget: TenantBudget; period: BudgetPeriod; spent: TenantSpent },
  ): void {
    if (here.told === period.name) return;
    here.told = period.name;
    this.#runtime.events?.emit({
      type: "tenant_budget_spent",
      tenant,
      period: period.name,
      ...spent,
      whenSpent: budget.whenSpent ?? "stop",
    });
  }
}

/** What turns that are not stored have spent in a period. */
function unstoredIn(
  { unstored }: UnderWay,
  { name }: BudgetPeriod,
  { committing }: { readonly committing: boolean },
): TenantSpent[] {
  return [...unstored.values()].flatMap(({ period, spent, before, isCommitting = false }) =>
    period === name && isCommitting === committing
      ? [{ tokens: spent.tokens - before.tokens, cost: spent.cost - before.cost }]
      : [],
  );
}

function wake({ waiting }: UnderWay): void {
  for (const resolve of [...waiting]) {
    waiting.delete(resolve);
    resolve();
  }
}

/** A direct completion is named by its session and a number of its own. */
function ownerOf(id: string): string {
  const at = id.indexOf("\u0000");
  return at < 0 ? id : id.slice(0, at);
}
