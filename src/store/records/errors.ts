import { TroupeError } from "../../kernel/index.js";

/**
 * The store's thread ended by itself. Another one is not started in its place: whether it died in the middle of a write
 * cannot be known, and LMDB's lock would then be held for ever.
 */
export function storeLost(cause?: unknown): TroupeError {
  return new TroupeError(
    "store_lost",
    "The store's thread is gone, and nothing can be stored any more. Restart the process; what was answered is there.",
    { cause },
  );
}

/** What is asked of a store that was closed. */
export function storeClosed(): TroupeError {
  return new TroupeError("store_closed", "The store is closed.");
}
