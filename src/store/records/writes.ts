import {
  type Change,
  type JournalRow,
  messageOf,
  type StoreWrite,
  TroupeError,
  type WriteResult,
} from "../../kernel/index.js";

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

/** How many records the changes write. What they delete is not counted. */
export function countRecords(changes: readonly Change[]): number {
  let count = 0;
  for (const { kind } of changes) if (kind.startsWith("put_")) count++;
  return count;
}

/** A journal whose rows follow each other; with one missing, the turn would do again what it has done. */
export function inOrder(sessionId: string, rows: JournalRow[]): JournalRow[] {
  const missing = rows.findIndex(({ sequence }, index) => sequence !== index);
  if (missing === -1) return rows;
  throw new TroupeError("journal_damaged", `Row ${missing} of the journal of session ${sessionId} is missing.`, {
    details: { sessionId, sequence: missing },
  });
}
