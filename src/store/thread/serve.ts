import type { MessagePort } from "node:worker_threads";
import { type Clock, deferred, loopTurn, type Timer } from "../../async/index.js";
import {
  type ChangeCount,
  type Commit,
  type CommitReceipt,
  type JournalClearing,
  type JournalEntry,
  type JournalReceipt,
  type Row,
  type RowName,
  type RowsReceipt,
  type RowsWrite,
  type StoreWrite,
  type TroupeError,
  unknownMethod,
  type WriteReceipt,
  type WriteResult,
} from "../../kernel/index.js";
import { Lane } from "../../wire/index.js";
import {
  type Answer,
  type ListRequest,
  listStored,
  listWaiting,
  type OrderRange,
  type PendingPage,
  type PendingRequest,
  type RowRange,
  type SessionPage,
  type StoreBackend,
  type StoreReader,
  storeClosed,
  type WriteCounts,
  writeFailed,
} from "../records/index.js";
import { Maintenance } from "../upkeep/index.js";
import { type OpenedSession, type Opening, READS, type ReadMethod, type Released } from "./store-calls.js";

export interface StoreStats extends WriteCounts {
  /** Commits written; replays and refusals are not counted. */
  readonly commits: number;
  /** Journal rows written, likewise. */
  readonly recorded: number;
  readonly sessions: number;
}

/**
 * The store worker's side of its lanes. All commits and journal records that arrive in one tick, from any number of
 * session workers, go into one transaction in the order they came, and each is answered when that transaction is on the
 * disk. While the disk is busy the next batch gathers in the ports, so the busier the store, the fewer syncs per write;
 * while a batch is away to a backend that answers later, it gathers here. One batch is away at a time.
 *
 * @example
 * const server = new StoreServer(openLmdb("./data"), clock);
 * server.attach(port);
 */
export class StoreServer {
  readonly #backend: StoreBackend;
  readonly #clock: Clock;
  readonly #lanes = new Set<Lane>();
  #waiting: WaitingWrite[] = [];
  #scheduled: Timer | undefined;
  /** Resolves when the batch that is away is answered. */
  #away: Promise<void> | undefined;
  #owners = 0;
  readonly #written = { commit: 0, record: 0 };
  #closed: Promise<void> | undefined;

  readonly maintenance: Maintenance;

  constructor(backend: StoreBackend, clock: Clock) {
    this.#backend = backend;
    this.#clock = clock;
    this.maintenance = new Maintenance({
      backend,
      clock,
      write: (write) => this.#enqueue(write),
      alone: (run) => this.#alone(run),
      pause: this.#pause,
    });
  }

  /** Says which owner it is. `replaces`: the owner whose thread is no more; its sessions are free. */
  attach(port: MessagePort, replaces?: string): string {
    if (this.#closed !== undefined) throw storeClosed();
    if (replaces !== undefined) void this.#backend.leave(replaces);
    // A worker that is started in another's place is another owner.
    const owner = `worker ${++this.#owners}`;
    const lane: Lane = new Lane(port, {
      name: "session worker",
      clock: this.#clock,
      serve: (method, payload) => this.#answer(method, payload, owner),
      onLost: () => {
        this.#lanes.delete(lane);
        if (this.#closed === undefined) void this.#backend.leave(owner);
      },
    });
    this.#lanes.add(lane);
    return owner;
  }

  /** Deletes a session; false when there was none. What only it led to goes with the next pruning. */
  async deleteSession(sessionId: string): Promise<boolean> {
    // The host's word counts more than whoever has it.
    const epoch = await this.#backend.claim(sessionId, { owner: "host", take: "always" });
    try {
      const { changed } = await this.#enqueue<ChangeCount>({ kind: "delete", sessionId, epoch });
      return changed > 0;
    } finally {
      await this.#backend.release(sessionId, epoch);
    }
  }

  async stats(): Promise<StoreStats> {
    const { commit: commits, record: recorded } = this.#written;
    const sessions = await this.#backend.sessionCount();
    return { ...this.#backend.writes, commits, recorded, sessions };
  }

  /** Is it stored, or has it a turn that was begun and is not stored yet? */
  async has(sessionId: string): Promise<boolean> {
    if ((await this.#backend.storedHead(sessionId)) !== undefined) return true;
    return (await this.#backend.journal(sessionId)).length > 0;
  }

  list(request: ListRequest): Promise<SessionPage> {
    return listStored(this.#backend, request, this.#pause);
  }

  row(name: RowName): Answer<Row | undefined> {
    return this.#backend.row(name);
  }

  rows(range: RowRange): Answer<readonly Row[]> {
    return this.#backend.rows(range);
  }

  rowsInOrder(range: OrderRange): Answer<readonly Row[]> {
    return this.#backend.rowsInOrder(range);
  }

  changeRows(changes: Omit<RowsWrite, "kind">): Promise<RowsReceipt> {
    return this.#enqueue<RowsReceipt>({ kind: "rows", ...changes });
  }

  waiting(request: PendingRequest): Promise<PendingPage> {
    return listWaiting(this.#backend, request);
  }

  async ancestors(asked: { readonly sessionId: string; readonly depth: number }): Promise<readonly string[]> {
    return (await READS.ancestors(this.#backend, [asked.sessionId, asked.depth], this.#pause)) ?? [];
  }

  async descendants({ sessionId, limit }: { readonly sessionId: string; readonly limit: number }): Promise<string[]> {
    const found: string[] = [];
    for (let at = -1; at < found.length && found.length < limit; at++)
      found.push(...(await this.#backend.children(found[at] ?? sessionId)));
    return found.slice(0, limit);
  }

  async isDescendant({ sessionId, of }: { readonly sessionId: string; readonly of: string }): Promise<boolean> {
    return (await this.ancestors({ sessionId, depth: MAX_ANCESTORS })).includes(of);
  }

  async unfinished(): Promise<readonly string[]> {
    const free: string[] = [];
    for (let after: string | undefined; ; ) {
      const sessions = await this.#backend.keys("journals", after, PAGE);
      for (const sessionId of sessions) if (!(await this.#backend.isOwned(sessionId))) free.push(sessionId);
      after = sessions.at(-1);
      if (sessions.length < PAGE) return free;
    }
  }

  /** Writes and answers what is waiting, then closes the lanes and the backend. */
  close(): Promise<void> {
    this.#closed ??= this.#shutDown();
    return this.#closed;
  }

  async #shutDown(): Promise<void> {
    this.#flush();
    await this.maintenance.ended();
    while (this.#away !== undefined) await this.#away;
    // The answers must leave before their lanes close.
    await loopTurn(this.#clock);
    for (const lane of [...this.#lanes]) lane.close();
    await this.#backend.close();
  }

  /** For work that takes long: whoever else waits has its turn. */
  readonly #pause: Pause = async () => {
    await loopTurn(this.#clock);
    if (this.#closed !== undefined) throw storeClosed();
  };

  #answer(method: string, payload: unknown, owner: string): unknown {
    // Both sides of the lane are typed by StoreCalls; here only the name is checked.
    switch (method) {
      case "claim":
        return this.#claim(payload as Opening, owner);
      case "open":
        return this.#open(payload as Opening, owner);
      case "release":
        return this.#release(payload as readonly Released[]);
      case "changeRows":
        return this.changeRows(payload as Omit<RowsWrite, "kind">);
      case "commit":
        return this.#enqueue<CommitReceipt>({ kind: "commit", commit: payload as Commit });
      case "clearJournal":
        return this.#enqueue<JournalReceipt>({ kind: "clear", ...(payload as JournalClearing) });
      case "record":
        return this.#enqueue<JournalReceipt>({ kind: "record", entry: payload as JournalEntry });
    }
    if (!Object.hasOwn(READS, method)) throw unknownMethod("The store", method);
    const read = READS[method as ReadMethod] as (reader: StoreReader, ask: unknown, pause: Pause) => unknown;
    return read(this.#backend, payload, this.#pause);
  }

  async #claim({ sessionId, take, released }: Opening, owner: string): Promise<number> {
    if (this.#closed !== undefined) throw storeClosed();
    await this.#release(released);
    return this.#backend.claim(sessionId, { owner, take });
  }

  async #open(opening: Opening, owner: string): Promise<OpenedSession> {
    const epoch = await this.#claim(opening, owner);
    try {
      return { ...(await READS.read(this.#backend, opening, this.#pause)), epoch };
    } catch (error) {
      await this.#backend.release(opening.sessionId, epoch);
      throw error;
    }
  }

  async #release(released: readonly Released[]): Promise<undefined> {
    for (const [sessionId, epoch] of released) await this.#backend.release(sessionId, epoch);
    return undefined;
  }

  /** `Receipt`: what the planner answers to this kind of write. */
  #enqueue<Receipt extends WriteReceipt>(write: StoreWrite): Promise<Receipt> {
    if (this.#closed !== undefined) return Promise.reject(storeClosed());
    return new Promise((resolve, reject) => {
      this.#waiting.push({ write, resolve: resolve as WaitingWrite["resolve"], reject });
      // Immediates run after the ports of this tick have been read, so every lane's writes are in by then.
      this.#scheduled ??= this.#clock.soon(() => this.#flush());
    });
  }

  #flush(): void {
    this.#scheduled?.cancel();
    this.#scheduled = undefined;
    const waiting = this.#waiting;
    if (waiting.length === 0 || this.#away !== undefined) return;
    this.#waiting = [];
    const results = this.#write(waiting.map(({ write }) => write));
    if (results instanceof Promise) this.#awaits(results.then((answers) => this.#settle(waiting, answers)));
    else this.#settle(waiting, results);
  }

  /** Until this is over nothing else is written; what came meanwhile is the next batch. */
  #awaits(over: Promise<void>): void {
    this.#away = over.finally(() => {
      this.#away = undefined;
      this.#flush();
    });
  }

  /** Does something while no batch is away, and none is sent. */
  async #alone<T>(run: () => Promise<T>): Promise<T> {
    while (this.#away !== undefined) await this.#away;
    const { promise, resolve } = deferred();
    this.#awaits(promise);
    try {
      return await run();
    } finally {
      resolve();
    }
  }

  #settle(waiting: readonly WaitingWrite[], results: readonly WriteResult[]): void {
    waiting.forEach(({ write, resolve, reject }, i) => {
      const result = results[i] as WriteResult;
      if (!result.ok) {
        reject(result.error);
        return;
      }
      this.#count(write, result.receipt);
      this.maintenance.wrote(write);
      resolve(result.receipt);
    });
  }

  #count({ kind }: StoreWrite, receipt: WriteReceipt): void {
    if ((kind === "commit" || kind === "record") && "replayed" in receipt && !receipt.replayed) this.#written[kind]++;
  }

  // A backend answers its own failures; a backend with a bug must not leave callers waiting for ever.
  #write(batch: readonly StoreWrite[]): Answer<WriteResult[]> {
    try {
      const results = this.#backend.write(batch);
      return results instanceof Promise ? results.catch((cause) => writeFailed(batch, cause)) : results;
    } catch (cause) {
      return writeFailed(batch, cause);
    }
  }
}

const MAX_ANCESTORS = 1_000;

/** Sessions looked at in one step. */
const PAGE = 1_000;

type Pause = () => Promise<void>;

interface WaitingWrite {
  readonly write: StoreWrite;
  readonly resolve: (receipt: WriteReceipt) => void;
  readonly reject: (error: TroupeError) => void;
}
