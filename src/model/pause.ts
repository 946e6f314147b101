import { setTimeout as timer } from "node:timers/promises";
import { TroupeError } from "../kernel/index.js";

/** The error of an aborted call. A reason that is already a TroupeError (`turn_timeout`, say) is kept. */
export function aborted(signal: AbortSignal): TroupeError {
  const { reason } = signal;
  if (reason instanceof TroupeError) return reason;
  return new TroupeError("aborted", "The model call was aborted.", { cause: reason });
}

/** Waits, unless the signal says otherwise: then rejects at once. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await timer(ms, undefined, { signal });
  } catch {
    throw aborted(signal);
  }
}
