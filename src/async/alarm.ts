import type { Clock, Timer } from "./clock.js";
import { ignore } from "./deferred.js";

interface AlarmParts {
  readonly clock: Clock;
  /** Does what is due; gives when to look again, null: there is nothing to look for. Never rejects. */
  readonly look: () => Promise<number | null>;
  /** The timer is looked at again after this long, for clocks that are put forward and machines that sleep. */
  readonly longestMs: number;
}

/** One timer for the earliest of many times; while there is none, there is no timer. */
export class Alarm {
  readonly #parts: AlarmParts;
  #timer: Timer | undefined;
  #at: number | undefined;
  #looking: Promise<void> | undefined;
  #closed = false;

  constructor(parts: AlarmParts) {
    this.#parts = parts;
  }

  /** Looks at this time, by the clock on the wall, or before. */
  by(at: number): void {
    if (this.#closed || (this.#at !== undefined && this.#at <= at)) return;
    this.#at = at;
    // The look under way sets the timer when it has ended.
    if (this.#looking === undefined) this.#set();
  }

  /** No look begins any more; resolves when the one under way has ended. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    await this.#looking;
  }

  #set(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    if (this.#closed || this.#at === undefined) return;
    const { clock, longestMs } = this.#parts;
    const waitMs = Math.min(Math.max(this.#at - clock.wallNow(), 0), longestMs);
    this.#timer = clock.timeout(waitMs, () => {
      this.#looking = this.#look().finally(() => {
        this.#looking = undefined;
        this.#set();
      });
      this.#looking.catch(ignore);
    });
  }

  async #look(): Promise<void> {
    this.#at = undefined;
    const next = await this.#parts.look();
    if (next !== null) this.by(next);
  }
}
