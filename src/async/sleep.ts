import { onAbort } from "./abortable.js";
import type { Clock } from "./clock.js";
import { deferred } from "./deferred.js";
import { ignore } from "./ignore.js";

export interface SleepOptions {
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
