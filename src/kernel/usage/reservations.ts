import { NOTHING_SPENT, type TenantSpent } from "./tenant-budget.js";

/** What is set aside for model calls that have begun and whose cost nobody knows yet: what such a call costs on average. */
export class Reservations {
  readonly #reserved = new Map<string, TenantSpent>();
  #calls = 0;
  #paid = NOTHING_SPENT;

  /** How many calls are under way. */
  get size(): number {
    return this.#reserved.size;
  }

  /** Is it known what a call costs? */
  get isInformed(): boolean {
    return this.#calls > 0;
  }

  get all(): readonly TenantSpent[] {
    return [...this.#reserved.values()];
  }

  get ids(): readonly string[] {
    return [...this.#reserved.keys()];
  }

  get average(): TenantSpent {
    if (this.#calls === 0) return NOTHING_SPENT;
    return { tokens: this.#paid.tokens / this.#calls, cost: this.#paid.cost / this.#calls };
  }

  has(id: string): boolean {
    return this.#reserved.has(id);
  }

  reserve(id: string): void {
    this.#reserved.set(id, this.average);
  }

  release(id: string): boolean {
    return this.#reserved.delete(id);
  }

  /** A call has cost so much. */
  paid(cost: TenantSpent): void {
    this.#calls++;
    this.#paid = sumOfSpent([this.#paid, cost]);
  }
}

export function sumOfSpent(all: readonly TenantSpent[]): TenantSpent {
  return all.reduce((a, b) => ({ tokens: a.tokens + b.tokens, cost: a.cost + b.cost }), NOTHING_SPENT);
}
