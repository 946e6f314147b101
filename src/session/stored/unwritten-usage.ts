import { addEntry, addLedgers, type Ledger, type LedgerEntry, ledgerSince } from "../../kernel/index.js";
import type { Unwritten } from "./components.js";

/** Usage that no commit has written yet. */
export class UnwrittenUsage implements Unwritten<Ledger> {
  readonly #whole: () => Ledger;
  #counted: Ledger = NONE;
  #held: Ledger = NONE;

  /** `whole`: everything that was ever counted, this included. */
  constructor(whole: () => Ledger) {
    this.#whole = whole;
  }

  get dirty(): boolean {
    return this.#counted.length > 0;
  }

  /** What the whole ledger could not hold is refused here, and not when it is written. */
  count(entry: LedgerEntry): void {
    addEntry(this.#whole(), entry);
    this.#counted = addEntry(this.#counted, entry);
  }

  /** What is written with the running turn and not before: taken up again after a crash, the turn counts it anew. */
  get held(): Ledger {
    return this.#held;
  }

  hold(entry: LedgerEntry): void {
    addEntry(this.#whole(), entry);
    this.#held = addEntry(this.#held, entry);
  }

  /** The turn is being stored, or will never be: what was held for it goes with the next write. */
  release(): void {
    this.#counted = addLedgers(this.#counted, this.#held);
    this.#held = NONE;
  }

  encode(): Ledger {
    return this.#counted;
  }

  written(counted: Ledger): void {
    this.#counted = ledgerSince(this.#counted, counted);
  }
}

const NONE: Ledger = [];
