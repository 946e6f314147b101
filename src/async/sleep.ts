import { onAbort } from "./abortable.js";
import type { Clock } from "./clock.js";
import { deferred, ignore } from "./deferred.js";

interface SleepOptions {
  /** Ends the sleep: it rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Whether the sleep keeps the thread alive. Default true. */
  readonly ref?: boolean;
}

export function sleep(clock: Clock, ms: number, { signal, ref = true }: SleepOptions = {}): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = clock.timeout(ms, () => {
      letGo();
      resolve();
    });
    if (!ref) timer.unref();
    const letGo = onAbort(signal, () => {
      timer.cancel();
      reject(signal?.reason);
    });
  });
}

/** Resolves when the events that wait by now have been dealt with. */
export function loopTurn(clock: Clock): Promise<void> {
  return new Promise((resolve) => clock.soon(resolve));
}

/** Waits for the promise to settle, `ms` at the longest; its value and its error are for others. */
export async function within(clock: Clock, ms: number, promise: Promise<unknown>): Promise<void> {
  const enough = deferred();
  const timer = clock.timeout(ms, enough.resolve);
  await Promise.race([promise.catch(ignore), enough.promise]);
  timer.cancel();
}

/** What the promise gives, or the error `late` makes when it has not settled after `ms`. */
export async function inTime<T>(clock: Clock, ms: number, promise: Promise<T>, late: () => Error): Promise<T> {
  const enough = deferred<never>();
  const timer = clock.timeout(ms, () => enough.reject(late()));
  try {
    return await Promise.race([promise, enough.promise]);
  } finally {
    timer.cancel();
  }
}

interface Patience {
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
