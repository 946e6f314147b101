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
  type Row,
  type RowsReceipt,
  type RowsWrite,
  sessionDeleted,
} from "../../kernel/index.js";
import {
  type Claim,
  type HistoryTail,
  type MessageNode,
  type OrderRange,
  outlinesOf,
  type ReaderFromAfar,
  type RowRange,
  readTailInSlices,
  readTree,
  type StoreReader,
  segmentsOf,
} from "../records/index.js";

/** Everything a session goes on from, as of one moment. */
export interface OpenedSession {
  /** What its writes carry from now on. */
  readonly epoch: number;
  readonly head: Head | undefined;
  /** Empty for who does not ask for it. */
  readonly journal: readonly JournalRow[];
  /** The head's components by hash. One that cannot be read is not among them. */
  readonly components: ReadonlyMap<string, Uint8Array>;
  /** What its last opening gave it, as it was kept in the table of that name. */
  readonly opening: Row | undefined;
}

export interface Opening extends Pick<Claim, "take"> {
  readonly sessionId: string;
  readonly journal: boolean;
  /** Sessions the asker has no more, with what it had claimed them with. */
  readonly released: readonly Released[];
}

export type Released = readonly [sessionId: string, epoch: number];

/** The table with what the last opening of a session gave it. */
export const OPENINGS = "openings";

/** The table of schedules, in the order of when each is looked at next. */
export const SCHEDULES = "schedules";

/** The tables of what sessions want to be told of, by trigger, and of the events on their way to them. */
export const SUBSCRIPTIONS = "subscriptions";
export const OCCURRENCES = "occurrences";

/** The tables of work beside sessions' turns: the tasks, and the input of each with the steps it has finished. */
export { TASK_STEPS, TASKS } from "../../kernel/index.js";

/** What a session worker says to the store worker on its lane: method → argument and answer. */
export interface StoreCalls {
  /** Claims a session and reads it. */
  readonly open: { readonly ask: Opening; readonly answer: OpenedSession };
  /** Claims it, for an asker that reads it itself. */
  readonly claim: { readonly ask: Opening; readonly answer: number };
  readonly release: { readonly ask: readonly Released[]; readonly answer: undefined };
  readonly commit: { readonly ask: Commit; readonly answer: CommitReceipt };
  readonly record: { readonly ask: JournalEntry; readonly answer: JournalReceipt };
  readonly clearJournal: { readonly ask: JournalClearing; readonly answer: JournalReceipt };
  readonly changeRows: { readonly ask: Omit<RowsWrite, "kind">; readonly answer: RowsReceipt };
  readonly read: {
    readonly ask: Pick<Opening, "sessionId" | "journal">;
    readonly answer: Omit<OpenedSession, "epoch">;
  };
  readonly head: { readonly ask: string; readonly answer: Head | null };
  readonly history: { readonly ask: string | null; readonly answer: readonly Message[] };
  readonly tail: { readonly ask: readonly [leaf: string | null, count: number]; readonly answer: HistoryTail };
  readonly onPath: { readonly ask: readonly [leaf: string | null, node: string]; readonly answer: boolean };
  readonly tree: { readonly ask: string; readonly answer: readonly MessageNode[] };
  readonly ancestors: {
    readonly ask: readonly [sessionId: string, depth: number];
    readonly answer: readonly string[] | null;
  };
  readonly component: { readonly ask: string; readonly answer: Uint8Array | null };
  readonly components: { readonly ask: readonly string[]; readonly answer: ReadonlyMap<string, Uint8Array> };
  readonly componentSize: { readonly ask: string; readonly answer: number | null };
  readonly rows: { readonly ask: RowRange; readonly answer: readonly Row[] };
  readonly rowsInOrder: { readonly ask: OrderRange; readonly answer: readonly Row[] };
}

/** The calls that change nothing. */
export type ReadMethod = Exclude<
  keyof StoreCalls,
  "open" | "claim" | "release" | "commit" | "record" | "clearJournal" | "changeRows"
>;

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
  async read(reader, { sessionId, journal }) {
    const head = await headOf(reader, sessionId);
    const opening = await reader.row({ table: OPENINGS, session: sessionId, key: "" });
    const hashes = Object.values(head?.components ?? {});
    return {
      head,
      journal: journal ? await reader.journal(sessionId) : [],
      components: await componentsOf(reader, hashes),
      opening,
    };
  },
  async head(reader, sessionId) {
    return (await headOf(reader, sessionId)) ?? null;
  },
  async history(reader, leaf, pause) {
    const segments = await segmentsOf(reader, [leaf]);
    return (await readTailInSlices(segments, leaf, Number.POSITIVE_INFINITY, pause)).messages;
  },
  async tail(reader, [leaf, count], pause) {
    return readTailInSlices(await segmentsOf(reader, [leaf], count), leaf, count, pause);
  },
  async onPath(reader, [leaf, node]) {
    return isOnPath(outlinesOf(await segmentsOf(reader, [leaf])), leaf, node);
  },
  tree: readTree,
  async ancestors(reader, [sessionId, depth]) {
    let head = await headOf(reader, sessionId);
    if (head === undefined) return null;
    const ancestors: string[] = [];
    while (head?.parent !== undefined && ancestors.length < depth) {
      ancestors.push(head.parent.sessionId);
      head = await reader.head(head.parent.sessionId);
    }
    return ancestors;
  },
  async component(reader, hash) {
    return (await reader.component(hash)) ?? null;
  },
  components: componentsOf,
  async componentSize(reader, hash) {
    return (await reader.componentSize(hash)) ?? null;
  },
  rows: (reader, range) => reader.rows(range),
  rowsInOrder: (reader, range) => reader.rowsInOrder(range),
};

async function headOf(reader: StoreReader, sessionId: string): Promise<Head | undefined> {
  const head = await reader.head(sessionId);
  if (head === undefined && (await reader.isDeleted(sessionId))) throw sessionDeleted(sessionId);
  return head;
}

/** In one ask where that matters. Who needs one that cannot be read asks for it alone, and is told why. */
async function componentsOf(reader: StoreReader, hashes: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>> {
  if ("components" in reader) return (reader as ReaderFromAfar).components(hashes);
  const found = new Map<string, Uint8Array>();
  for (const hash of hashes) {
    try {
      const bytes = await reader.component(hash);
      if (bytes !== undefined) found.set(hash, bytes);
    } catch {}
  }
  return found;
}
