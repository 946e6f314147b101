/** A host busier than this gets another beside it; all of them together less busy than that, one is enough. */
const GROW_SHARE = 0.7;
const SHRINK_SHARE = 0.3;
/** Looks in a row (one takes 200 ms) before the number of shards changes. */
const GROW_LOOKS = 3;
const SHRINK_LOOKS = 100;

/** How busy the shards of a group were lately, and how many it should have. */
export class ShardLoad {
  #looks = { busy: 0, calm: 0 };
  readonly #shares = new Map<string, number>();

  /** One look at a shard. Gives the number of shards that fits, of which there are `now`. */
  weigh(key: string, share: number, { now, most }: { readonly now: number; readonly most: number }): number {
    this.#shares.set(key, share);
    const shares = [...this.#shares.values()];
    this.#looks.busy = Math.max(...shares) > GROW_SHARE && now < most ? this.#looks.busy + 1 : 0;
    const total = shares.reduce((sum, each) => sum + each, 0);
    this.#looks.calm = total < SHRINK_SHARE && now > 1 ? this.#looks.calm + 1 : 0;
    if (this.#looks.busy >= GROW_LOOKS * shares.length) return now + 1;
    return this.#looks.calm >= SHRINK_LOOKS * shares.length ? 1 : now;
  }

  /** The number of shards has changed: those that are no more do not count. */
  spread(isSurplus: (key: string) => boolean): void {
    this.#looks = { busy: 0, calm: 0 };
    for (const key of [...this.#shares.keys()]) if (isSurplus(key)) this.#shares.delete(key);
  }

  forget(key: string): void {
    this.#shares.delete(key);
  }
}
