import type { CommitBudget, Head, JournalRow, StoreWrite, WriteResult } from "../../kernel/index.js";

/** Where sessions are kept: in this process only, or in a folder that survives it. */
export type StoreOptions = ({ readonly memory: true } | { readonly path: string }) & {
  /** How large one commit may be; generous by default. */
  readonly commitBudget?: CommitBudget;
};

/**
 * What can be read from a store, all of it synchronously. Segments and components never change once written, so only
 * heads and journals can be out of date. What is stored and cannot be read throws: a record that is damaged is never
 * taken for one that is missing, nor given out.
 *
 * @example
 * const head = reader.head("chat-42");
 * const messages = readHistory(reader, head?.leaf ?? null);
 */
export interface StoreReader {
  head(sessionId: string): Head | undefined;
  segment(id: string): Uint8Array | undefined;
  component(hash: string): Uint8Array | undefined;
  /** What the session's running turn has recorded, in order. */
  journal(sessionId: string): readonly JournalRow[];
  /** Was there a session of this id, and was it deleted? */
  isDeleted(sessionId: string): boolean;
  /** Every session, in the order of the ids' UTF-8 bytes. */
  sessionIds(): Iterable<string>;
  sessionCount(): number;
}

/**
 * What a store must do. It runs in the store worker, which is its only writer. Bytes come in and go out as they are; a
 * component's hash is the hash of its bytes.
 *
 * A backend keeps the bytes of a write it was given, so the caller must not change them afterwards.
 *
 * @example
 * const [result] = backend.write([{ kind: "commit", commit: { head, expectedRevision: 0, components: [] } }]);
 * if (result?.ok) console.log(result.receipt); // { revision: 1, replayed: false }
 */
export interface StoreBackend extends StoreReader {
  /**
   * Writes the whole batch in one atomic, synced transaction. Each write is decided on its own (see `planWrites`),
   * after the ones before it; one that is refused does not touch the others. When the transaction itself fails, every
   * write of the batch answers `store_write_failed` and nothing of it is stored.
   */
  write(batch: readonly StoreWrite[]): WriteResult[];
  /** The next keys of a table after one, in order; of journals, the sessions that have one. */
  keys(table: KeyTable, after: string | undefined, limit: number): string[];
  /** Copies the store as it is now into an empty folder, while commits go on. Absent: it cannot. */
  backup?(folder: string): Promise<void>;
  /** Exact counts since opening, so that tests can pin what a turn costs. */
  readonly writes: WriteCounts;
  close(): void;
}

export type KeyTable = "heads" | "segments" | "components" | "journals";

/** The tables of a store on disk. Named here, because the package's types must not lead to those of LMDB. */
export const TABLE_NAMES = ["heads", "segments", "components", "journal", "deleted"] as const;
export type TableName = (typeof TABLE_NAMES)[number];

/** Transactions that wrote something, and the records (heads, segments, components, journal rows) they wrote. */
export interface WriteCounts {
  readonly transactions: number;
  readonly records: number;
}
