import { addEntry, type Ledger, type LedgerEntry, ledgerSince } from "../kernel/index.js";
import type { Unwritten } from "./components.js";

/** Usage that no commit has written yet. */
export class UnwrittenUsage implements Unwritten<Ledger> {
  readonly #whole: () => Ledger;
  #counted: Ledger = [];

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

  encode(): Ledger {
    return this.#counted;
  }

  written(counted: Ledger): void {
    this.#counted = ledgerSince(this.#counted, counted);
  }
}
