import { onAbort } from "../../async/index.js";
import {
  addLedgers,
  isZeroUsage,
  type Ledger,
  type LedgerEntry,
  type ModelPrices,
  type SessionBudget,
  type SpendingReport,
  spentOf,
  TroupeError,
  whySpent,
} from "../../kernel/index.js";
import { encode } from "../../wire/index.js";
import type { StoredSession } from "../stored/index.js";
import { COMPONENT, Component } from "../stored/index.js";
import { betweenTurns, type SessionLife } from "./session-life.js";

export interface SpendingParts {
  readonly budget: SessionBudget | null;
  readonly prices: ModelPrices;
  readonly stored: Pick<StoredSession, "ledger" | "usage" | "store">;
  readonly life: SessionLife;
}

/** What a session has spent, its budget, and who waits for it to be raised. */
export class Spending {
  readonly component = new Component(COMPONENT.budget);
  readonly #parts: SpendingParts;
  readonly #waiting = new Set<() => void>();
  #budget: SessionBudget | null;

  constructor(parts: SpendingParts) {
    this.#parts = parts;
    this.#budget = parts.budget;
  }

  get budget(): SessionBudget | null {
    return this.#budget;
  }

  /** Says what the session may spend, once it is stored: a turn that waits for it goes on. */
  async set(budget: SessionBudget | null): Promise<SpendingReport> {
    this.component.change(encode({ budget }));
    await this.#parts.stored.store("budget");
    this.#budget = budget;
    for (const wake of [...this.#waiting]) wake();
    return this.report();
  }

  /** Everything the session has spent, the running turn's calls included. */
  get ledger(): Ledger {
    return addLedgers(this.#parts.stored.ledger, this.#parts.life.unstoredTurn?.state.spent ?? []);
  }

  /** Counts usage that is not of the session's own turns. Written with the running turn, or else at once. */
  async record(entry: LedgerEntry): Promise<void> {
    if (isZeroUsage(entry.usage)) return;
    const { stored, life } = this.#parts;
    const between = betweenTurns(life.now);
    if (between) stored.usage.count(entry);
    else stored.usage.hold(entry);
    life.turn?.tellUsage(entry);
    if (between) await stored.store("usage");
  }

  report(): SpendingReport {
    return { budget: this.#budget, ...this.#spent() };
  }

  /** Why there is nothing left to pay another call with; undefined while there is. */
  whySpent(): string | undefined {
    return this.#budget === null ? undefined : whySpent(this.#budget, this.#spent());
  }

  #spent() {
    return spentOf(this.ledger, this.#parts.prices);
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
