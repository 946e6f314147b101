import type { TroupeError } from "../errors.js";
import type { Head } from "../session/index.js";
import type { Commit, CommitFacts, StoredHead } from "./commit.js";
import type { JournalEntry, JournalRow } from "./journal.js";

/** One thing to write. A batch of them is one transaction. */
export type StoreWrite =
  | { readonly kind: "commit"; readonly commit: Commit }
  | { readonly kind: "record"; readonly entry: JournalEntry; readonly at: number }
  | ({ readonly kind: "clear" } & JournalClearing)
  | DeleteWrite
  | SweepWrite
  | ImportWrite;

/** A turn came to nothing: what it recorded is forgotten. */
export interface JournalClearing {
  readonly sessionId: string;
  readonly expectedRevision: number;
}

/** Deletes a session: its head and its journal. What only it led to is left to be swept. */
export interface DeleteWrite {
  readonly kind: "delete";
  readonly sessionId: string;
  /** Only over this revision, when given. */
  readonly expectedRevision?: number;
  readonly at: number;
}

/** Removes what nothing leads to any more. Whoever sends it knows that; see the pruning of the store room. */
export interface SweepWrite {
  readonly kind: "sweep";
  readonly segments: readonly string[];
  readonly components: readonly string[];
  /** Journals of these sessions, unless something was recorded in one at `recordedSince` or later. */
  readonly journals: readonly string[];
  readonly recordedSince: number;
}

/** A part of a session from elsewhere; the head comes with the last part and makes it a session. */
export interface ImportWrite {
  readonly kind: "import";
  readonly sessionId: string;
  readonly segments: readonly { readonly id: string; readonly bytes: Uint8Array }[];
  readonly components: readonly { readonly hash: string; readonly bytes: Uint8Array }[];
  readonly head?: Head;
}

export interface CommitReceipt {
  readonly revision: number;
  /** True when this operation had already been committed: nothing was written, the first answer is given again. */
  readonly replayed: boolean;
}

/** The answer to a record: it is kept now, or was before, and then the first outcome counts. */
export type JournalReceipt = { readonly replayed: false } | { readonly replayed: true; readonly bytes: Uint8Array };

/** The answer to what a host asks for: how many records came or went. 0: there was nothing to do. */
export interface ChangeCount {
  readonly changed: number;
}

export type WriteReceipt = CommitReceipt | JournalReceipt | ChangeCount;

export type WriteResult =
  | { readonly ok: true; readonly receipt: WriteReceipt }
  | { readonly ok: false; readonly error: TroupeError };

/** One row to write or to delete. Backends carry these out and decide nothing. */
export type Change =
  | { readonly kind: "put_head"; readonly stored: StoredHead }
  | { readonly kind: "put_segment"; readonly id: string; readonly bytes: Uint8Array }
  | { readonly kind: "put_component"; readonly hash: string; readonly bytes: Uint8Array }
  | { readonly kind: "put_journal"; readonly sessionId: string; readonly row: JournalRow }
  | { readonly kind: "clear_journal"; readonly sessionId: string; readonly sequences: readonly number[] }
  | { readonly kind: "delete_head"; readonly sessionId: string; readonly revision: number; readonly at: number }
  | { readonly kind: "delete_segment"; readonly id: string }
  | { readonly kind: "delete_component"; readonly hash: string };

/** A journal row without what it recorded. */
export type JournalMark = Pick<JournalRow, "sequence" | "turnId" | "key" | "hash">;

export interface WriteFacts extends CommitFacts {
  /** The session's journal, in order. */
  journal(sessionId: string): readonly JournalMark[];
  journalRow(sessionId: string, sequence: number): JournalRow | undefined;
}
