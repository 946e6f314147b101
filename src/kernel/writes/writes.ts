import type { TroupeError } from "../errors.js";
import type { Head } from "../session/index.js";
import type { Commit, CommitFacts, StoredHead } from "./commit.js";
import type { JournalEntry, JournalRow } from "./journal.js";
import type { Row, RowName, RowOrder, RowWrite } from "./rows.js";

/** One thing to write. A batch of them is one transaction. */
export type StoreWrite =
  | { readonly kind: "commit"; readonly commit: Commit }
  | { readonly kind: "record"; readonly entry: JournalEntry }
  | ({ readonly kind: "clear" } & JournalClearing)
  | DeleteWrite
  | RowsWrite
  | SweepWrite
  | ImportWrite;

/** A turn came to nothing: what it recorded is forgotten. */
export interface JournalClearing {
  readonly sessionId: string;
  readonly expectedRevision: number;
  readonly epoch: number;
  readonly rows?: readonly RowWrite[];
}

/** Changes rows of named tables, all of them or none. */
export interface RowsWrite {
  readonly kind: "rows";
  readonly changes: readonly RowWrite[];
  /** Only for the owner of a session, when given. */
  readonly owner?: { readonly sessionId: string; readonly epoch: number };
}

/** Deletes a session: its head, its journal and its rows. What only it led to is left to be swept. */
export interface DeleteWrite {
  readonly kind: "delete";
  readonly sessionId: string;
  /** Only over this revision, when given. */
  readonly expectedRevision?: number;
  readonly epoch: number;
}

/** Removes what nothing leads to any more. Whoever sends it knows that; see the pruning of the store room. */
export interface SweepWrite {
  readonly kind: "sweep";
  readonly segments: readonly string[];
  readonly components: readonly string[];
  /** Journals of these sessions, unless something was recorded in one during the last `quietForMs`. */
  readonly journals: readonly string[];
  readonly quietForMs: number;
}

/** A part of a session from elsewhere; the head comes with the last part and makes it a session. */
export interface ImportWrite {
  readonly kind: "import";
  readonly sessionId: string;
  readonly segments: readonly { readonly id: string; readonly bytes: Uint8Array }[];
  readonly components: readonly { readonly hash: string; readonly bytes: Uint8Array }[];
  readonly head?: Head;
  /** Those of the session, with its head. */
  readonly rows?: readonly Row[];
}

export interface CommitReceipt {
  readonly revision: number;
  /** True when this operation had already been committed: nothing was written, the first answer is given again. */
  readonly replayed: boolean;
}

/** The answer to a record: it is kept now, or was before, and then the first outcome counts. */
export type JournalReceipt =
  | { readonly replayed: false }
  | { readonly replayed: true; readonly bytes: Uint8Array; readonly at: number };

/** The answer to what a host asks for: how many records came or went. 0: there was nothing to do. */
export interface ChangeCount {
  readonly changed: number;
}

/** The answer to a change of rows: the version each is at now, 0 for one that was removed. */
export interface RowsReceipt {
  readonly versions: readonly number[];
}

export type WriteReceipt = CommitReceipt | JournalReceipt | ChangeCount | RowsReceipt;

export type WriteResult =
  | { readonly ok: true; readonly receipt: WriteReceipt }
  | { readonly ok: false; readonly error: TroupeError };

/** One row to write or to delete. Backends carry these out and decide nothing. */
export type Change =
  | { readonly kind: "put_head"; readonly stored: StoredHead; readonly before: SessionPlace | undefined }
  | { readonly kind: "put_segment"; readonly id: string; readonly bytes: Uint8Array }
  | { readonly kind: "put_component"; readonly hash: string; readonly bytes: Uint8Array }
  | { readonly kind: "put_journal"; readonly sessionId: string; readonly row: JournalRow }
  | { readonly kind: "clear_journal"; readonly sessionId: string; readonly sequences: readonly number[] }
  | {
      readonly kind: "delete_head";
      readonly sessionId: string;
      readonly revision: number;
      readonly at: number;
      readonly before: SessionPlace;
    }
  | { readonly kind: "put_row"; readonly row: Row; readonly before: RowOrder | undefined }
  | { readonly kind: "delete_row"; readonly name: RowName; readonly before: RowOrder | undefined }
  | { readonly kind: "delete_segment"; readonly id: string }
  | { readonly kind: "delete_component"; readonly hash: string };

/** Where a session stands in the lists of sessions: by tenant and by when it was last written, and below its parent. */
export interface SessionPlace {
  readonly order: RowOrder;
  readonly parent: string | undefined;
}

/** A journal row without what it recorded. */
export type JournalMark = Pick<JournalRow, "sequence" | "turnId" | "key" | "hash">;

export interface WriteFacts extends CommitFacts {
  /** The session's journal, in order. */
  journal(sessionId: string): readonly JournalMark[];
  journalRow(sessionId: string, sequence: number): JournalRow | undefined;
  row(name: RowName): Row | undefined;
  /** The session's rows, of all tables. */
  rowsOf(sessionId: string): readonly RowName[];
}
