import type {
  CommitBudget,
  Head,
  JournalRow,
  Row,
  RowName,
  StoredHead,
  StoreWrite,
  WriteResult,
} from "../../kernel/index.js";
import type { Claim } from "./claims.js";

/** Where sessions are kept: in this process only, or in a folder that survives it. */
export type StoreOptions = ({ readonly memory: true } | { readonly path: string }) & {
  /** How large one commit may be; generous by default. */
  readonly commitBudget?: CommitBudget;
};

/** A backend may answer at once or later. Who is asked at once is not waited for. */
export type Answer<T> = T | Promise<T>;

/** A page of rows, by their keys. */
export interface RowRange {
  readonly table: string;
  /** Of this session; of nobody's, when it is left out. */
  readonly session?: string;
  /** Only keys behind this one. */
  readonly after?: string;
  /** Only keys that begin with this. */
  readonly prefix?: string;
  readonly limit: number;
}

/** A page of rows that have an order, of all sessions: those of one owner, by time. */
export interface OrderRange {
  readonly table: string;
  readonly owner?: string;
  /** From this time on. */
  readonly from?: number;
  /** Before this time. */
  readonly until?: number;
  /** Only what comes behind this one: the last of the page before. */
  readonly after?: Pick<Row, "table" | "key" | "session" | "order">;
  /** The latest first. */
  readonly reverse?: boolean;
  readonly limit: number;
}

/** A session of the index: what is asked for is its head. */
export interface IndexedSession {
  readonly sessionId: string;
  /** The second in which it was last written, in milliseconds: its head knows it exactly. */
  readonly at: number;
}

/** The sessions of one tenant, or of none, by the second in which each was last written. */
export type IndexRange = Omit<OrderRange, "table" | "owner" | "after"> & {
  readonly tenant?: string;
  readonly after?: IndexedSession;
};

/**
 * What can be read from a store. Segments and components never change once written, so only heads, journals and rows can
 * be out of date. What is stored and cannot be read throws: a record that is damaged is never taken for one that is
 * missing, nor given out.
 */
export interface StoreReader {
  head(sessionId: string): Answer<Head | undefined>;
  /** With when it was written. */
  storedHead(sessionId: string): Answer<StoredHead | undefined>;
  segment(id: string): Answer<Uint8Array | undefined>;
  component(hash: string): Answer<Uint8Array | undefined>;
  /** How many bytes it has, without reading them; undefined when it is not there. */
  componentSize(hash: string): Answer<number | undefined>;
  /** What the session's running turn has recorded, in order. */
  journal(sessionId: string): Answer<readonly JournalRow[]>;
  /** Was there a session of this id, and was it deleted? */
  isDeleted(sessionId: string): Answer<boolean>;
  /** Every session, in the order of the ids' UTF-8 bytes. */
  sessionIds(): Answer<Iterable<string>>;
  sessionCount(): Answer<number>;
  /** The sessions whose heads name this one as their parent. */
  children(sessionId: string): Answer<readonly string[]>;
  row(name: RowName): Answer<Row | undefined>;
  rows(range: RowRange): Answer<readonly Row[]>;
  rowsInOrder(range: OrderRange): Answer<readonly Row[]>;
  sessionsInOrder(range: IndexRange): Answer<readonly IndexedSession[]>;
}

/** A reader that answers at once. */
export type ReaderAtOnce = {
  readonly [M in keyof StoreReader]: StoreReader[M] extends (...asked: infer A) => Answer<infer R>
    ? (...asked: A) => R
    : never;
};

/**
 * A reader that is asked over a distance, and so for many things at once.
 *
 * @example
 * const [last] = await reader.segmentRun("chat-42@7", 256); // and those before it, newest first
 */
export interface ReaderFromAfar extends StoreReader {
  /** A segment and those of the same session with lower revisions, the highest first; empty when it is not there. */
  segmentRun(id: string, limit: number): Promise<readonly { readonly id: string; readonly bytes: Uint8Array }[]>;
  /** Those that are there, by hash. */
  components(hashes: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>>;
}

/**
 * What a store must do. It runs in the store worker, which is its only writer. Bytes come in and go out as they are; a
 * component's hash is the hash of its bytes.
 *
 * A backend keeps the bytes of a write it was given, so the caller must not change them afterwards.
 *
 * @example
 * const epoch = await backend.claim("chat-42", { owner: "me", take: "always" });
 * const [result] = await backend.write([
 *   { kind: "commit", commit: { head, expectedRevision: 0, epoch, components: [] } },
 * ]);
 * if (result?.ok) console.log(result.receipt); // { revision: 1, replayed: false }
 */
export interface StoreBackend extends StoreReader {
  /**
   * Makes somebody the session's owner, and gives the number its writes carry from now on: larger than every one before,
   * also than those of other openings of this store. A session that is not there can be claimed, and that stores nothing.
   */
  claim(sessionId: string, claim: Claim): Answer<number>;
  /** The session is nobody's any more, unless somebody else claimed it meanwhile. */
  release(sessionId: string, epoch: number): Answer<void>;
  /** An owner is gone: what it had can be claimed as free, and counts as unfinished. */
  leave(owner: string): Answer<void>;
  /** Does somebody alive have the session? */
  isOwned(sessionId: string): Answer<boolean>;
  /**
   * Writes the whole batch in one atomic, synced transaction. Each write is decided on its own (see `planWrites`),
   * after the ones before it; one that is refused does not touch the others. When the transaction itself fails, every
   * write of the batch answers `store_write_failed` and nothing of it is stored.
   */
  write(batch: readonly StoreWrite[]): Answer<WriteResult[]>;
  /** The next keys of a table after one, in order; of journals, the sessions that have one. */
  keys(table: KeyTable, after: string | undefined, limit: number): Answer<string[]>;
  /** Copies the store as it is now into an empty folder, while commits go on. Absent: it cannot. */
  backup?(folder: string): Promise<void>;
  /** Exact counts since opening, so that tests can pin what a turn costs. */
  readonly writes: WriteCounts;
  close(): Answer<void>;
}

/** A backend of this process: it answers at once. */
export type BackendAtOnce = ReaderAtOnce &
  Pick<StoreBackend, "backup" | "writes"> & {
    write(batch: readonly StoreWrite[]): WriteResult[];
    claim(sessionId: string, claim: Claim): number;
    release(sessionId: string, epoch: number): void;
    leave(owner: string): void;
    isOwned(sessionId: string): boolean;
    keys(table: KeyTable, after: string | undefined, limit: number): string[];
    close(): void;
  };

export type KeyTable = "heads" | "segments" | "components" | "journals" | "rows";

/** The tables of a store on disk. Named here, because the package's types must not lead to those of LMDB. */
export const TABLE_NAMES = [
  "heads",
  "segments",
  "components",
  "journal",
  "deleted",
  "rows",
  "order",
  "children",
] as const;
export type TableName = (typeof TABLE_NAMES)[number];

/** Transactions that wrote something, and the records (heads, segments, components, journal rows, rows) they wrote. */
export interface WriteCounts {
  readonly transactions: number;
  readonly records: number;
}
