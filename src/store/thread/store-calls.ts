import type { MessagePort } from "node:worker_threads";
import type {
  Commit,
  CommitReceipt,
  Head,
  JournalClearing,
  JournalEntry,
  JournalReceipt,
  JournalRow,
  Message,
} from "../../kernel/index.js";
import type {
  HistoryTail,
  ListRequest,
  MessageNode,
  SessionPage,
  StoreOptions,
  WriteCounts,
} from "../records/index.js";
import type {
  ExportRequest,
  ImportedSession,
  ImportRequest,
  PrunePolicy,
  PruneReport,
  Watched,
} from "../upkeep/index.js";

export interface DeleteRequest {
  readonly sessionId: string;
  /** Only when the session is still at this revision. */
  readonly expectedRevision?: number;
}

/** What a session worker says to the store worker on its lane: method → argument and answer. */
export interface StoreCalls {
  readonly commit: { readonly ask: Commit; readonly answer: CommitReceipt };
  readonly record: { readonly ask: JournalEntry; readonly answer: JournalReceipt };
  readonly clearJournal: { readonly ask: JournalClearing; readonly answer: JournalReceipt };
  readonly delete: { readonly ask: DeleteRequest; readonly answer: boolean };
  readonly journal: { readonly ask: string; readonly answer: readonly JournalRow[] };
  readonly head: { readonly ask: string; readonly answer: Head | null };
  readonly history: { readonly ask: string | null; readonly answer: readonly Message[] };
  readonly tail: { readonly ask: readonly [leaf: string | null, count: number]; readonly answer: HistoryTail };
  readonly onPath: { readonly ask: readonly [leaf: string | null, node: string]; readonly answer: boolean };
  readonly nodesBetween: {
    readonly ask: readonly [from: string | null, to: string | null];
    readonly answer: readonly string[];
  };
  readonly tree: { readonly ask: string; readonly answer: readonly MessageNode[] };
  readonly component: { readonly ask: string; readonly answer: Uint8Array | null };
  readonly sessionIds: { readonly ask: null; readonly answer: readonly string[] };
}

export interface StoreStats extends WriteCounts {
  /** Commits written; replays and refusals are not counted. */
  readonly commits: number;
  /** Journal rows written, likewise. */
  readonly recorded: number;
  readonly sessions: number;
}

/**
 * What the main thread says to the store worker.
 *
 * @example
 * const store = new Caller<StoreService>(worker, { name: "store worker", deadlineMs: 10_000 });
 * await store.to.open({ path: "./data" });
 * const { port1, port2 } = new MessageChannel();
 * await store.to.attach({ port: port1 }, { transfer: [port1] }); // port2 goes to a session worker
 */
// A type, not an interface: only a type's members satisfy the index signature of `Service`.
export type StoreService = {
  readonly open: (options: StoreOptions) => void;
  /** Serves one more session worker. */
  readonly attach: (argument: { readonly port: MessagePort }) => void;
  readonly stats: (nothing?: undefined) => StoreStats;
  /** Sessions whose last turn was begun and not finished. */
  readonly unfinished: (nothing?: undefined) => readonly string[];
  /** False when there was no such session. Its id is not used again. */
  readonly deleteSession: (request: DeleteRequest) => Promise<boolean>;
  readonly list: (request: ListRequest) => SessionPage;
  readonly prune: (policy: Watched<PrunePolicy>) => Promise<PruneReport>;
  /** The bytes, unless they were to go into a file. */
  readonly exportSession: (request: Watched<ExportRequest>) => Promise<{ readonly bytes?: Uint8Array<ArrayBuffer> }>;
  readonly importSession: (request: Watched<ImportRequest>) => Promise<ImportedSession>;
  /** A copy of a store on disk, as it is at one moment. */
  readonly backup: (request: { readonly folder: string }) => Promise<void>;
  /** For tests: the thread dies of an error, between two writes. */
  readonly crash: (nothing?: undefined) => void;
  /** Writes what is waiting, answers it, closes everything; the thread then ends by itself. */
  readonly close: (nothing?: undefined) => Promise<void>;
};
