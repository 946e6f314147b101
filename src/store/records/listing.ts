import { asTroupeError, TroupeError } from "../../kernel/index.js";
import type { StoreBackend } from "./contract.js";

export interface ListRequest {
  /** The id the page begins behind: the last one of the page before. */
  readonly after?: string | undefined;
  /** How many at most, up to 1,000. Default 100. */
  readonly limit?: number;
}

/** A session as the store has it. */
export interface StoredSession {
  readonly id: string;
  readonly turns: number;
  readonly revision: number;
  /** The session it was forked from or created by. */
  readonly parent?: string;
  /** Why its record cannot be read; the counts are 0 then. */
  readonly damaged?: string;
}

export interface SessionPage {
  /** In the order of their ids' bytes. */
  readonly sessions: readonly StoredSession[];
  /** What the next page is asked for with (`after`); null when there is none. */
  readonly next: string | null;
}

const MAX_LIMIT = 1_000;

/** A page of a store's sessions. One that cannot be read is listed as that, and does not keep the others from being seen. */
export function listStored(
  backend: Pick<StoreBackend, "keys" | "head">,
  { after, limit = 100 }: ListRequest,
): SessionPage {
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT)
    throw new TroupeError("invalid_list", `limit is a whole number from 1 to ${MAX_LIMIT}.`);
  if (after !== undefined && typeof after !== "string")
    throw new TroupeError("invalid_list", "after is the id of a session.");
  const keys = backend.keys("heads", after, limit + 1);
  const ids = keys.slice(0, limit);
  return {
    sessions: ids.flatMap((id) => stored(backend, id) ?? []),
    next: keys.length > limit ? (ids.at(-1) ?? null) : null,
  };
}

function stored(backend: Pick<StoreBackend, "head">, id: string): StoredSession | undefined {
  try {
    const head = backend.head(id);
    if (head === undefined) return undefined;
    const { turnIndex: turns, revision, parent } = head;
    return { id, turns, revision, ...(parent && { parent: parent.sessionId }) };
  } catch (error) {
    return { id, turns: 0, revision: 0, damaged: asTroupeError(error, "store_damaged").code };
  }
}
