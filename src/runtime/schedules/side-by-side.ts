import { type Deferred, deferred } from "../../async/index.js";

/** Does things side by side, so many at once. */
export class SideBySide {
  readonly #most: number;
  #running = 0;
  /** Resolves when the next one has ended. */
  #fewer: Deferred<void> | undefined;
  #failure: { readonly error: unknown } | undefined;

  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves when so many more may begin. More than may be at once begin when nothing else is under way. */
  async room(count: number): Promise<void> {
    while (this.#running > 0 && this.#running + count > this.#most) await this.#less();
  }

  /** Work that fails is told by {@link ended}, once all has ended. */
  begin(work: () => Promise<void>): void {
    this.#running++;
    void this.#follow(work());
  }

  /** Resolves when all that was begun has ended; rejects with the first failure. */
  async ended(): Promise<void> {
    while (this.#running > 0) await this.#less();
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  async #follow(work: Promise<void>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.#failure ??= { error };
    }
    this.#running--;
    this.#fewer?.resolve();
    this.#fewer = undefined;
  }

  #less(): Promise<void> {
    this.#fewer ??= deferred();
    return this.#fewer.promise;
  }
}
