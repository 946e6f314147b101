import { type Change, messageOf, type StoreWrite, TroupeError, type WriteResult } from "../../kernel/index.js";

/** The answers to a batch whose transaction failed as a whole. Repeating a write is safe: it has an id of its own. */
export function writeFailed(batch: readonly StoreWrite[], cause: unknown): WriteResult[] {
  return batch.map((write) => {
    const sessionId = sessionOf(write);
    const what = sessionId === undefined ? "Nothing" : `Nothing of session ${sessionId}`;
    return {
      ok: false,
      error: new TroupeError(
        "store_write_failed",
        `${what} was stored: ${messageOf(cause)}. Check the disk, then try again.`,
        { retryable: true, details: sessionId === undefined ? {} : { sessionId }, cause },
      ),
    };
  });
}

function sessionOf(write: StoreWrite): string | undefined {
  switch (write.kind) {
    case "commit":
      return write.commit.head.sessionId;
    case "record":
      return write.entry.sessionId;
    case "clear":
    case "delete":
    case "import":
      return write.sessionId;
    case "sweep":
      return undefined;
  }
}

/** Counts a transaction and the records it wrote. What was deleted is not counted. */
export function countWrites(counts: { transactions: number; records: number }, changes: readonly Change[]): void {
  if (changes.length > 0) counts.transactions++;
  for (const { kind } of changes) if (kind.startsWith("put_")) counts.records++;
}

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
