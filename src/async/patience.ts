import type { Clock } from "./clock.js";
import { sleep } from "./sleep.js";

export interface Patience {
  readonly clock: Clock;
  /** Attempts before the last error is thrown. */
  readonly attempts: number;
  /** Milliseconds to wait before an attempt; attempts count from 1. */
  readonly pauseMs: (attempt: number) => number;
  /** Ends the waiting: `persist` rejects with the signal's reason before its next attempt. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Attempts something until it works, with a pause before each attempt.
 *
 * @example
 * await persist(() => thread.start(), { clock, attempts: 5, pauseMs: (attempt) => 50 * attempt });
 */
export async function persist<T>(
  attempt: () => Promise<T>,
  { clock, attempts, pauseMs, signal }: Patience,
): Promise<T> {
  for (let count = 1; ; count++) {
    await sleep(clock, pauseMs(count), { signal });
    signal?.throwIfAborted();
    try {
      return await attempt();
    } catch (error) {
      if (count >= attempts) throw error;
    }
  }
}
