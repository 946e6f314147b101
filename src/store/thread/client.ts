import type { MessagePort } from "node:worker_threads";
import { type Clock, ignore, loopTurn } from "../../async/index.js";
import type {
  Commit,
  CommitReceipt,
  Head,
  JournalClearing,
  JournalEntry,
  JournalReceipt,
  Message,
  Row,
  RowsReceipt,
  RowsWrite,
  TroupeError,
} from "../../kernel/index.js";
import { Lane } from "../../wire/index.js";
import { type LmdbReader, openLmdbReader } from "../lmdb/index.js";
import {
  type Claim,
  type HistoryTail,
  type MessageNode,
  type OrderRange,
  type RowRange,
  type StoreOptions,
  storeClosed,
  storeLost,
} from "../records/index.js";
import { type OpenedSession, READS, type ReadMethod, type Released, type StoreCalls } from "./store-calls.js";

/** How many sessions may be let go of before the store is told without being asked for anything. */
const MAX_RELEASED = 256;

interface StoreClientOptions {
  /** The other end of a port that the store worker has attached. */
  readonly port: MessagePort;
  /** The options the store worker was opened with. */
  readonly options: StoreOptions;
  readonly clock: Clock;
  /** Behind it this thread reads the file, when others may end the thread. */
  readonly gate?: Int32Array | undefined;
  /** The store worker is gone, or `close` was called. */
  readonly onLost?: (error: TroupeError) => void;
  /** Told of writes that took long; without it nothing is measured. */
  readonly onSlow?: ((slow: SlowWrite) => void) | undefined;
}

export interface SlowWrite {
  readonly sessionId: string;
  readonly write: "commit" | "record";
  readonly tookMs: number;
}

/** From when on a write takes long. */
const SLOW_MS = 1_000;

/**
 * The store as a session worker sees it. Commits go to the store worker. Reads of a store with a path are answered by
 * this thread, from the memory-mapped file; reads of a memory store go to the store worker as well.
 *
 * @example
 * const store = new StoreClient({ port, clock, options: { path: "./data" } });
 * const { head, epoch } = await store.open("chat-42", { take: "always", journal: true });
 * const { revision } = await store.commit({ ...commit, epoch }); // resolves when it is on the disk
 * const messages = await store.history((await store.head("chat-42"))?.leaf ?? null);
 */
export class StoreClient {
  readonly #clock: Clock;
  readonly #lane: Lane;
  readonly #path: string | undefined;
  readonly #gate: Int32Array | undefined;
  #opened: LmdbReader | undefined;
  #released: Released[] = [];
  #closed = false;

  readonly #onSlow: StoreClientOptions["onSlow"];

  constructor({ port, options, clock, gate, onLost, onSlow }: StoreClientOptions) {
    this.#clock = clock;
    this.#onSlow = onSlow;
    this.#gate = gate;
    this.#lane = new Lane(port, { name: "store worker", clock, whenLost: storeLost, ...(onLost && { onLost }) });
    this.#path = "path" in options ? options.path : undefined;
  }

  /**
   * Makes this thread the session's owner and reads it, in one ask. `free`: only when nobody alive has it, otherwise it
   * rejects with `session_moved`. Whoever had it is refused from now on. Rejects with `session_deleted` for an id that is
   * not used again.
   */
  async open(
    sessionId: string,
    { take, journal }: Pick<Claim, "take"> & { readonly journal: boolean },
  ): Promise<OpenedSession> {
    const ask = { sessionId, take, journal, released: this.#released.splice(0) };
    if (this.#path === undefined) return this.#call("open", ask);
    const epoch = await this.#call("claim", ask);
    try {
      return { ...(await this.#read("read", { sessionId, journal })), epoch };
    } catch (error) {
      this.release(sessionId, epoch);
      throw error;
    }
  }

  /** The session is nobody's now. The store is told with what it is asked for next. */
  release(sessionId: string, epoch: number): void {
    if (this.#released.push([sessionId, epoch]) < MAX_RELEASED || this.#closed) return;
    void this.released().catch(ignore);
  }

  /** Resolves when the store knows of all that were let go of, so that another thread can have them. */
  async released(): Promise<void> {
    if (this.#released.length > 0) await this.#call("release", this.#released.splice(0));
  }

  /** Undefined for an id that is free; rejects with `session_deleted` for one that is not used again. */
  async head(sessionId: string): Promise<Head | undefined> {
    return (await this.#read("head", sessionId)) ?? undefined;
  }

  /** The messages up to and including node `leaf`, oldest first. */
  history(leaf: string | null): Promise<readonly Message[]> {
    return this.#read("history", leaf);
  }

  /** The last `count` messages up to `leaf`, and the node before them; reads no more of the history than that. */
  tail(leaf: string | null, count: number): Promise<HistoryTail> {
    return this.#read("tail", [leaf, count]);
  }

  /** Is a node on the way from the root to `leaf`? */
  onPath(leaf: string | null, node: string): Promise<boolean> {
    return this.#read("onPath", [leaf, node]);
  }

  /** The session's parent, that one's parent and so on; undefined when there is no such session. */
  async ancestors(sessionId: string, depth: number): Promise<readonly string[] | undefined> {
    return (await this.#read("ancestors", [sessionId, depth])) ?? undefined;
  }

  /** The session's messages as a tree, with the frames it left and the sessions forked from it. */
  tree(sessionId: string): Promise<readonly MessageNode[]> {
    return this.#read("tree", sessionId);
  }

  async component(hash: string): Promise<Uint8Array | undefined> {
    return (await this.#read("component", hash)) ?? undefined;
  }

  /** Several in one ask. One that is not there, or cannot be read, is not among them. */
  components(hashes: readonly string[]): Promise<ReadonlyMap<string, Uint8Array>> {
    return this.#read("components", hashes);
  }

  /** How large it is, without its bytes. */
  async componentSize(hash: string): Promise<number | undefined> {
    return (await this.#read("componentSize", hash)) ?? undefined;
  }

  /** A page of a table's rows by key, of one session or of nobody. */
  rows(range: RowRange): Promise<readonly Row[]> {
    return this.#read("rows", range);
  }

  /** A page of a table's rows by owner and time, of all sessions. */
  rowsInOrder(range: OrderRange): Promise<readonly Row[]> {
    return this.#read("rowsInOrder", range);
  }

  /** Changes rows, all or none; rejects with `row_conflict` when one is not as expected. */
  changeRows(write: Omit<RowsWrite, "kind">): Promise<RowsReceipt> {
    return this.#call("changeRows", write);
  }

  /** Resolves when the commit is durable. Rejects with `head_conflict`, `session_exists`, `store_write_failed`, … */
  commit(commit: Commit): Promise<CommitReceipt> {
    return this.#timed("commit", commit, commit.head.sessionId);
  }

  /**
   * Records the outcome of an effect; resolves when it is durable. The first outcome of a turn's replay key counts: who
   * comes later with the same request gets its bytes. Rejects with `replay_mismatch` when the request is another one,
   * with `session_moved` when somebody else has the session by now.
   *
   * @example
   * const recorded = await store.record({ ...sealEnvelope(request), sessionId, turnId, key, bytes, expectedRevision, epoch });
   * const outcome = decode(recorded.replayed ? recorded.bytes : bytes);
   */
  record(entry: JournalEntry): Promise<JournalReceipt> {
    return this.#timed("record", entry, entry.sessionId);
  }

  /** Forgets what a turn recorded that came to nothing. */
  async clearJournal(clearing: JournalClearing): Promise<void> {
    await this.#call("clearJournal", clearing);
  }

  /** Commits without an answer reject with `store_lost`; they may have been written. */
  close(): void {
    this.#closed = true;
    this.#lane.close();
    this.#opened?.close();
    this.#opened = undefined;
  }

  #timed<M extends SlowWrite["write"]>(
    method: M,
    ask: StoreCalls[M]["ask"],
    sessionId: string,
  ): Promise<StoreCalls[M]["answer"]> {
    const written = this.#call(method, ask);
    const onSlow = this.#onSlow;
    if (onSlow === undefined) return written;
    const started = this.#clock.now();
    return written.finally(() => {
      const tookMs = this.#clock.now() - started;
      if (tookMs >= SLOW_MS) onSlow({ sessionId, write: method, tookMs });
    });
  }

  // No deadline: a late commit is still durable, so giving up early would only make its outcome unknown.
  #call<M extends keyof StoreCalls>(method: M, ask: StoreCalls[M]["ask"]): Promise<StoreCalls[M]["answer"]> {
    return this.#lane.call(method, ask);
  }

  async #read<M extends ReadMethod>(method: M, ask: StoreCalls[M]["ask"]): Promise<StoreCalls[M]["answer"]> {
    if (this.#path !== undefined) this.#opened ??= openLmdbReader(this.#path, this.#gate);
    const reader = this.#opened;
    return reader === undefined ? this.#call(method, ask) : READS[method](reader, ask, this.#pause);
  }

  readonly #pause = async (): Promise<void> => {
    await loopTurn(this.#clock);
    if (this.#closed) throw storeClosed();
  };
}
