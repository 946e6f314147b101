import {
  type Commit,
  type CommitReceipt,
  type Head,
  isOnPath,
  type JournalClearing,
  type JournalEntry,
  type JournalReceipt,
  type JournalRow,
  type Message,
  sessionDeleted,
} from "../../kernel/index.js";
import {
  type HistoryTail,
  type MessageNode,
  outlinesOf,
  readTailInSlices,
  readTree,
  type StoreReader,
} from "../records/index.js";

/** What a session worker says to the store worker on its lane: method → argument and answer. */
export interface StoreCalls {
  readonly commit: { readonly ask: Commit; readonly answer: CommitReceipt };
  readonly record: { readonly ask: JournalEntry; readonly answer: JournalReceipt };
  readonly clearJournal: { readonly ask: JournalClearing; readonly answer: JournalReceipt };
  readonly journal: { readonly ask: string; readonly answer: readonly JournalRow[] };
  readonly head: { readonly ask: string; readonly answer: Head | null };
  readonly history: { readonly ask: string | null; readonly answer: readonly Message[] };
  readonly tail: { readonly ask: readonly [leaf: string | null, count: number]; readonly answer: HistoryTail };
  readonly onPath: { readonly ask: readonly [leaf: string | null, node: string]; readonly answer: boolean };
  readonly tree: { readonly ask: string; readonly answer: readonly MessageNode[] };
  readonly component: { readonly ask: string; readonly answer: Uint8Array | null };
}

/** The calls that change nothing. */
export type ReadMethod = Exclude<keyof StoreCalls, "commit" | "record" | "clearJournal">;

/**
 * How each is answered: by the store worker for a memory store, by the asking thread for one with a path. What may take
 * long pauses now and then, and ends when `pause` throws.
 */
export const READS: {
  readonly [M in ReadMethod]: (
    reader: StoreReader,
    ask: StoreCalls[M]["ask"],
    pause: () => Promise<void>,
  ) => StoreCalls[M]["answer"] | Promise<StoreCalls[M]["answer"]>;
} = {
  head(reader, sessionId) {
    const head = reader.head(sessionId);
    if (head === undefined && reader.isDeleted(sessionId)) throw sessionDeleted(sessionId);
    return head ?? null;
  },
  async history(reader, leaf, pause) {
    return (await readTailInSlices(reader, leaf, Number.POSITIVE_INFINITY, pause)).messages;
  },
  tail: (reader, [leaf, count], pause) => readTailInSlices(reader, leaf, count, pause),
  onPath: (reader, [leaf, node]) => isOnPath(outlinesOf(reader), leaf, node),
  tree: readTree,
  journal: (reader, sessionId) => reader.journal(sessionId),
  component: (reader, hash) => reader.component(hash) ?? null,
};
