import { type Clock, ignore, onAbort, untilAborted } from "../../async/index.js";
import {
  type BudgetPeriod,
  budgetSpent,
  type Ledger,
  type LedgerEntry,
  type ModelPrices,
  type RowWrite,
  spentOf,
  type TenantSpent,
} from "../../kernel/index.js";
import { type StoreClient, TENANT_SPENDING, tenantRowKey } from "../../store/index.js";
import type { HostRelay, TenantAnswer } from "../calls/index.js";

/** Tenants of which a worker remembers that they have no budget. */
const MAX_UNLIMITED = 10_000;

/** What a worker's sessions know of their tenants' budgets. */
export class TenantAccounts {
  /** They have no budget: nobody is asked again until that changes. */
  readonly unlimited = new Set<string>();
  readonly #waiting = new Map<string, Set<() => void>>();

  /** A tenant's budget is another one: whoever waits for it asks again. */
  changed(tenant: string): void {
    this.unlimited.delete(tenant);
    for (const wake of [...(this.#waiting.get(tenant) ?? [])]) wake();
  }

  /** Resolves with the next change, at a time, or when nobody waits any more. */
  async untilChanged(
    tenant: string,
    { clock, until, signal }: { readonly clock: Clock; readonly until: number; readonly signal: AbortSignal },
  ): Promise<void> {
    const waiting = this.#waiting.get(tenant) ?? new Set();
    this.#waiting.set(tenant, waiting);
    await new Promise<void>((resolve) => {
      const wake = () => {
        waiting.delete(wake);
        if (waiting.size === 0 && this.#waiting.get(tenant) === waiting) this.#waiting.delete(tenant);
        timer.cancel();
        letGo();
        resolve();
      };
      waiting.add(wake);
      // A timer holds no more than so long; who is woken early asks, and waits again.
      const timer = clock.timeout(Math.min(LONGEST_MS, Math.max(1, until - clock.wallNow())), wake);
      const letGo = onAbort(signal, wake);
    });
  }

  noBudget(tenant: string): void {
    if (this.unlimited.size >= MAX_UNLIMITED) this.unlimited.clear();
    this.unlimited.add(tenant);
  }
}

const LONGEST_MS = 2 ** 31 - 1;

interface TenantParts {
  readonly tenant: string;
  readonly sessionId: string;
  readonly accounts: TenantAccounts;
  readonly services: {
    readonly clock: Clock;
    readonly prices: ModelPrices;
    readonly store: Pick<StoreClient, "changeRows">;
    readonly relay: HostRelay;
  };
}

/** Undefined where nothing is asked or counted. */
export function tenantSpendingOf(
  sessionId: string,
  tenant: string | undefined,
  services: TenantParts["services"] & { readonly tenants: TenantAccounts | undefined },
): TenantSpending | undefined {
  const { tenants: accounts } = services;
  if (accounts === undefined || tenant === undefined) return undefined;
  return new TenantSpending({ tenant, sessionId, accounts, services });
}

/** A session's share of what its tenant may spend; only where tenants have budgets, and of a session that has a tenant. */
export class TenantSpending {
  readonly #parts: TenantParts;
  #completions = 0;
  /** The turn was asked about, and is to be told the end of. */
  #isAsked = false;

  constructor(parts: TenantParts) {
    this.#parts = parts;
  }

  /** Nothing is asked or told for it. */
  get isUnlimited(): boolean {
    return this.#parts.accounts.unlimited.has(this.#parts.tenant);
  }

  /** Asks whether a call may begin; `unstored`: what the turn has spent that is not stored. */
  async admit(unstored: Ledger, signal: AbortSignal): Promise<TenantAnswer> {
    const answer = await this.#admit({ id: this.#parts.sessionId, unstored: this.#spentOf(unstored) }, signal);
    if (answer.kind !== "unlimited") this.#isAsked = true;
    return answer;
  }

  /** A call of the turn has ended. */
  paid(unstored: Ledger, call: Ledger): void {
    if (this.isUnlimited) return;
    const { tenant, sessionId: id, services } = this.#parts;
    const told = { tenant, id, unstored: this.#spentOf([...unstored, ...call]), cost: this.#spentOf(call) };
    void services.relay("tenantPaid", told).catch(ignore);
  }

  /** What a turn's commit counts for the tenant, in its own write. */
  async countOf(spent: Ledger): Promise<readonly RowWrite[]> {
    if (this.isUnlimited || spent.length === 0) return NO_ROWS;
    const { tenant, services, accounts } = this.#parts;
    const period = await services.relay("tenantCommits", { tenant, id: this.#parts.sessionId });
    if (period === null) {
      accounts.noBudget(tenant);
      return NO_ROWS;
    }
    return this.#rowsOf(period, spent);
  }

  /** The turn is stored with what it counts, or came to nothing. */
  ended(): void {
    if (!this.#isAsked) return;
    this.#isAsked = false;
    const { tenant, services, sessionId: id } = this.#parts;
    void services.relay("tenantEnded", { tenant, id }).catch(ignore);
  }

  /** A turn that was refused has spent all the same: there is no commit to count it with. */
  async countRefused(spent: Ledger): Promise<void> {
    try {
      const changes = await this.countOf(spent);
      if (changes.length > 0) await this.#parts.services.store.changeRows({ changes });
    } finally {
      this.ended();
    }
  }

  /** A completion beside the turn: paid when it is answered, and counted then. Throws `budget_spent` before. */
  async completed<T extends { readonly entry: LedgerEntry }>(
    signal: AbortSignal,
    complete: () => Promise<T>,
  ): Promise<T> {
    if (this.isUnlimited) return complete();
    const { tenant, sessionId, services } = this.#parts;
    // No session's id has this character.
    const id = `${sessionId}\u0000${this.#completions++}`;
    const answer = await this.#admit({ id, unstored: { tokens: 0, cost: 0 } }, signal);
    if (answer.kind === "unlimited") return complete();
    if (answer.kind === "spent") throw budgetSpent(answer.why);
    try {
      const done = await complete();
      await services.store.changeRows({ changes: this.#rowsOf(answer.period, [done.entry]) });
      return done;
    } finally {
      void services.relay("tenantEnded", { tenant, id }).catch(ignore);
    }
  }

  async #admit(asked: { readonly id: string; readonly unstored: TenantSpent }, signal: AbortSignal) {
    if (this.isUnlimited) return UNLIMITED;
    const { tenant, services, accounts } = this.#parts;
    const asking = services.relay("tenantAdmit", { tenant, ...asked });
    const letGo = onAbort(signal, () => {
      // Nobody will make the call that may be let in yet.
      void asking.then(() => services.relay("tenantEnded", { tenant, id: asked.id })).catch(ignore);
    });
    try {
      const answer = await untilAborted(asking, signal);
      if (answer.kind === "unlimited") accounts.noBudget(tenant);
      return answer;
    } finally {
      letGo();
    }
  }

  #spentOf(ledger: Ledger): TenantSpent {
    const { tokens, cost } = spentOf(ledger, this.#parts.services.prices);
    return { tokens, cost };
  }

  #rowsOf(period: BudgetPeriod, spent: Ledger): readonly RowWrite[] {
    const { tokens, cost } = this.#spentOf(spent);
    if (tokens === 0 && cost === 0) return NO_ROWS;
    const { tenant } = this.#parts;
    const key = tenantRowKey(tenant, period);
    return [{ table: TENANT_SPENDING, key, add: [tokens, cost], order: { at: period.start, owner: tenant } }];
  }

  /** Waits until the tenant's budget is another, or its period over. */
  untilChanged(until: number, signal: AbortSignal): Promise<void> {
    const { tenant, accounts, services } = this.#parts;
    return accounts.untilChanged(tenant, { clock: services.clock, until, signal });
  }
}

const UNLIMITED: TenantAnswer = { kind: "unlimited" };
const NO_ROWS: readonly RowWrite[] = [];
