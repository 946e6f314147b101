import { setTimeout as timer } from "node:timers/promises";
import { aborted } from "../kernel/index.js";

/** Waits, unless the signal says otherwise: then rejects at once. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  try {
    await timer(ms, undefined, { signal });
  } catch {
    throw aborted(signal);
  }
}
