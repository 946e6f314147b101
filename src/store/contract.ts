import type { Commit, Head, TroupeError } from "../kernel/index.js";

/** Where sessions are kept: in this process only, or in a folder that survives it. */
export type StoreOptions = { readonly memory: true } | { readonly path: string };

/**
 * What can be read from a store, all of it synchronously. Segments and components never change once written, so only
 * heads can be out of date.
 *
 * @example
 * const head = reader.head("chat-42");
 * const messages = readHistory(reader, head?.leaf ?? null);
 */
export interface StoreReader {
  head(sessionId: string): Head | undefined;
  segment(id: string): Uint8Array | undefined;
  component(hash: string): Uint8Array | undefined;
  /** Every session, in the order of the ids' UTF-8 bytes. */
  sessionIds(): Iterable<string>;
  sessionCount(): number;
}

/**
 * What a store must do. It runs in the store worker, which is its only writer. Bytes come in and go out as they are.
 *
 * A backend keeps the bytes of a commit it was given, so the caller must not change them afterwards.
 *
 * @example
 * const [result] = backend.commit([{ head, expectedRevision: 0, components: [] }]);
 * if (result?.ok) console.log(`now at revision ${result.revision}`);
 */
export interface StoreBackend extends StoreReader {
  /**
   * Writes the whole batch in one atomic, synced transaction. Each commit is decided on its own (see {@link decide}),
   * after the ones before it; one that is refused does not touch the others. When the transaction itself fails, every
   * commit of the batch answers `store_write_failed` and nothing of it is stored.
   */
  commit(batch: readonly Commit[]): CommitResult[];
  /** Exact counts since opening, so that tests can pin what a turn costs. */
  readonly writes: WriteCounts;
  close(): void;
}

/** Transactions that wrote something, and the records (heads, segments, components) they wrote. */
export interface WriteCounts {
  readonly transactions: number;
  readonly records: number;
}

export interface CommitReceipt {
  readonly revision: number;
  /** True when this operation had already been committed: nothing was written, the first answer is given again. */
  readonly replayed: boolean;
}

export type CommitResult =
  | ({ readonly ok: true } & CommitReceipt)
  | { readonly ok: false; readonly error: TroupeError };
