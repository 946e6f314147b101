import type { FrameRecord } from "../history/index.js";
import type { Ledger, Usage } from "../usage/index.js";

/** The mutable part of a session: one small record, replaced by every commit. */
export interface Head {
  readonly sessionId: string;
  /** Grows by one with every commit; the compare-and-set guard. */
  readonly revision: number;
  /** The last node of the active path, or null while the history is empty. */
  readonly leaf: string | null;
  readonly turnIndex: number;
  /** Messages of the conversation up to the leaf, records not counted. Left out where nobody has counted them. */
  readonly messageCount?: number;
  /** Of the session's own model calls. */
  readonly usage: Usage;
  /** Component name (`plugin:<id>`, `tools`) → content hash. */
  readonly components: Readonly<Record<string, string>>;
  /** The operation that wrote this head: repeating it is answered, not repeated. */
  readonly operation: string;
  /** Whose call the last stored turn was: asked for again after a crash, it is not run again. */
  readonly lastCall?: string;
  /** Whose session it is: given when it is made, inherited by forks and children, never changed. */
  readonly tenant?: string;
  /** The agent it has, with its version; left out by a session that has the runtime's own settings. */
  readonly agent?: string;
  /** The plugins it was made with, by id, or those of the session it was made of; left out when it may have all. */
  readonly plugins?: readonly string[];
  /** The host's own words for finding it in a list. */
  readonly metadata?: Readonly<Record<string, string>>;
  readonly parent?: { readonly sessionId: string; readonly leaf: string | null };
  /**
   * Of a session that goes on from another one's history: the first of that family. Requests of a family begin alike, and
   * its name tells a provider so. Absent: its own id.
   */
  readonly family?: string;
  /** The frame the session is in, when it has left its first one, and those it left. */
  readonly frameId?: string;
  readonly frames?: readonly FrameRecord[];
  /** Everything spent, by source and model: own calls, direct completions, child sessions. Read it with `ledgerOf`. */
  readonly ledger?: Ledger;
}

/** For a head that is put over another history: whoever reads all of it counts it anew. */
export function uncounted({ messageCount: _, ...head }: Head): Head {
  return head;
}

/** What a session is given when it is made, and keeps: whose it is, what it is found by, which agent it has. */
export type Identity = Pick<Head, "tenant" | "metadata" | "agent" | "plugins">;
