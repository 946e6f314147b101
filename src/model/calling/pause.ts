import { type Clock, sleep } from "../../async/index.js";
import { aborted } from "../../kernel/index.js";

/** Waits, unless the signal says otherwise: then rejects at once. */
export async function pause(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  try {
    await sleep(clock, ms, { signal });
  } catch {
    throw aborted(signal);
  }
}
