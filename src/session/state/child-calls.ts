import type { Clock } from "../../async/index.js";
import {
  type LedgerEntry,
  type ModelPrices,
  Reservations,
  type SessionBudget,
  type Spent,
  spentOf,
  sumOfSpent,
  type TenantSpent,
  whySpent,
} from "../../kernel/index.js";
import type { PayerAnswer } from "../calls/index.js";

interface Admitting {
  readonly waits: boolean;
  readonly onEnd: () => void;
}

interface ChildCallsParts {
  readonly clock: Pick<Clock, "soon">;
  readonly prices: ModelPrices;
  readonly budget: () => SessionBudget | null;
  readonly spent: () => Spent;
}

/**
 * Model calls that are made for a session with a budget by others: by its children, in turns it started. A call begins when
 * what is spent, and what the calls under way are expected to cost, leaves something; so children that run at once spend no
 * more than they would one after another. What a call costs is learnt from those that ended; before, one is made at a time.
 */
export class ChildCalls {
  readonly #parts: ChildCallsParts;
  readonly #reserved = new Reservations();
  /** By call: told what changed. */
  readonly #waiting = new Map<string, (how: "changed" | "left") => void>();
  /** By call that was let in: told when it has ended. */
  readonly #onEnd = new Map<string, () => void>();
  /** The session's own call is under way. */
  #own = false;

  constructor(parts: ChildCallsParts) {
    this.#parts = parts;
  }

  /**
   * May a child's call begin? With `waits` also a spent budget is waited for, until it is raised. `onEnd`: called when the
   * call has ended, or is not let in.
   */
  async admit(call: string, { waits, onEnd }: Admitting): Promise<PayerAnswer> {
    this.#release(call);
    const answer = await this.#admit(call, waits);
    if (this.#reserved.has(call)) this.#onEnd.set(call, onEnd);
    else onEnd();
    return answer;
  }

  async #admit(call: string, waits: boolean): Promise<PayerAnswer> {
    for (;;) {
      const budget = this.#parts.budget();
      if (budget === null) return GO;
      const why = whySpent(budget, this.#parts.spent());
      if (why !== undefined && !waits) return { kind: "spent", why, whenSpent: budget.whenSpent ?? "stop" };
      if (why === undefined && this.#fits(budget)) {
        this.#reserved.reserve(call);
        return GO;
      }
      if ((await this.#change(call)) === "left") return GO;
    }
  }

  #release(call: string): boolean {
    const released = this.#reserved.release(call);
    this.#onEnd.get(call)?.();
    this.#onEnd.delete(call);
    return released;
  }

  /** A call that a child was let in for has ended and is counted, or is not made. */
  ended(call: string): void {
    const waits = this.#waiting.get(call);
    waits?.("left");
    if (this.#release(call)) this.changed();
  }

  /** The session goes on with another budget's keeper: what was let in is not known there. */
  drop(): void {
    for (const call of [...this.#waiting.keys(), ...this.#onEnd.keys()]) this.ended(call);
  }

  /** A child has spent something. */
  counted(entry: LedgerEntry): void {
    this.#reserved.paid(spentOf([entry], this.#parts.prices));
  }

  /** Children's calls may use up what is left: resolves when that may be otherwise. Undefined: the session's own call can begin. */
  crowd(): Promise<unknown> | undefined {
    if (this.#reserved.size === 0) return undefined;
    const budget = this.#parts.budget();
    return budget === null || this.#fits(budget) ? undefined : this.#change("");
  }

  /** The session's own call is under way, until the function is called: behind that it is counted. */
  own(): () => void {
    this.#own = true;
    return () => {
      this.#own = false;
      // What it cost is counted by who awaits its end, and so by then.
      if (this.#waiting.size > 0) this.#parts.clock.soon(() => this.changed());
    };
  }

  /** Something is spent, or the budget is another one. */
  changed(): void {
    for (const resolve of [...this.#waiting.values()]) resolve("changed");
  }

  #fits(budget: SessionBudget): boolean {
    if (this.#reserved.size === 0 && !this.#own) return true;
    if (!this.#reserved.isInformed) return false;
    const own: readonly TenantSpent[] = this.#own ? [this.#reserved.average] : [];
    const spent = this.#parts.spent();
    return whySpent(budget, { ...spent, ...sumOfSpent([spent, ...this.#reserved.all, ...own]) }) === undefined;
  }

  #change(call: string): Promise<"changed" | "left"> {
    return new Promise((resolve) => {
      this.#waiting.set(call, (how) => {
        this.#waiting.delete(call);
        resolve(how);
      });
    });
  }
}

const GO: PayerAnswer = { kind: "go" };
