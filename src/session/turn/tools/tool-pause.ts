import { ignore, sleep } from "../../../async/index.js";
import type { Turn } from "../turn.js";

interface Pause {
  /** Where the turn's journal has when it was begun. */
  readonly key: string;
  readonly delayMs: number;
  readonly signal: AbortSignal;
}

/** A pause that was begun before a crash ends when it would have. */
export async function pauseBeforeRetry({ journal, session }: Turn, { key, delayMs, signal }: Pause): Promise<void> {
  const { clock } = session.services;
  const begun = await journal.once<number, null>({
    key,
    envelope: () => delayMs,
    run: () => clock.wallNow(),
    keep: () => null,
    found: (_, at) => at,
  });
  journal.waits();
  const due = begun + delayMs;
  // A timer counts from when the event loop last looked at the clock, and so may be early.
  for (let leftMs = due - clock.wallNow(); leftMs > 0 && !signal.aborted; leftMs = due - clock.wallNow())
    await sleep(clock, leftMs, { signal }).catch(ignore);
}
