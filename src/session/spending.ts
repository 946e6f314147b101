import { onAbort } from "../async/index.js";
import {
  type Ledger,
  type ModelPrices,
  type SessionBudget,
  type SpendingReport,
  spentOf,
  TroupeError,
  whySpent,
} from "../kernel/index.js";

/** A session's budget, and who waits for it to be raised. */
export class Spending {
  readonly #prices: ModelPrices;
  readonly #ledger: () => Ledger;
  readonly #waiting = new Set<() => void>();
  #budget: SessionBudget | null;

  /** `ledger`: everything the session has spent by now, the running turn's calls included. */
  constructor(budget: SessionBudget | null, prices: ModelPrices, ledger: () => Ledger) {
    this.#budget = budget;
    this.#prices = prices;
    this.#ledger = ledger;
  }

  get budget(): SessionBudget | null {
    return this.#budget;
  }

  set(budget: SessionBudget | null): void {
    this.#budget = budget;
    for (const wake of [...this.#waiting]) wake();
  }

  report(): SpendingReport {
    return { budget: this.#budget, ...spentOf(this.#ledger(), this.#prices) };
  }

  /** Why there is nothing left to pay another call with; undefined while there is. */
  whySpent(): string | undefined {
    return this.#budget === null ? undefined : whySpent(this.#budget, spentOf(this.#ledger(), this.#prices));
  }

  /** Throws `budget_spent` when there is nothing left. */
  check(): void {
    const why = this.whySpent();
    if (why !== undefined) throw new TroupeError("budget_spent", why);
  }

  /** Resolves when there is something to spend again, or the signal aborts. */
  async untilRaised(signal: AbortSignal): Promise<void> {
    while (this.whySpent() !== undefined && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const wake = () => {
          this.#waiting.delete(wake);
          letGo();
          resolve();
        };
        this.#waiting.add(wake);
        const letGo = onAbort(signal, wake);
      });
    }
  }
}
