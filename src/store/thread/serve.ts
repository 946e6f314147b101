import type { MessagePort } from "node:worker_threads";
import { type Clock, loopTurn, type Timer } from "../../async/index.js";
import {
  type ChangeCount,
  type Commit,
  type CommitReceipt,
  type JournalClearing,
  type JournalEntry,
  type JournalReceipt,
  type StoreWrite,
  TroupeError,
  type WriteReceipt,
  type WriteResult,
} from "../../kernel/index.js";
import { Lane } from "../../wire/index.js";
import type { StoreBackend, StoreReader } from "../records/index.js";
import { type ListRequest, listStored, type SessionPage, storeClosed, writeFailed } from "../records/index.js";
import { Maintenance } from "../upkeep/index.js";
import { READS, type ReadMethod } from "./reads.js";
import type { DeleteRequest, StoreStats } from "./store-calls.js";

/**
 * The store worker's side of its lanes. All commits and journal records that arrive in one tick, from any number of
 * session workers, go into one transaction in the order they came, and each is answered when that transaction is on the
 * disk. While the disk is busy the next batch gathers in the ports, so the busier the store, the fewer syncs per write.
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
      pause: this.#pause,
    });
  }

  attach(port: MessagePort): void {
    if (this.#closed !== undefined) throw storeClosed();
    const lane: Lane = new Lane(port, {
      name: "session worker",
      clock: this.#clock,
      serve: (method, payload) => this.#answer(method, payload),
      onLost: () => this.#lanes.delete(lane),
    });
    this.#lanes.add(lane);
  }

  /** Deletes a session; false when there was none. What only it led to goes with the next pruning. */
  async deleteSession({ sessionId, expectedRevision }: DeleteRequest): Promise<boolean> {
    const { changed } = await this.#enqueue<ChangeCount>({
      kind: "delete",
      sessionId,
      at: this.#clock.wallNow(),
      ...(expectedRevision !== undefined && { expectedRevision }),
    });
    return changed > 0;
  }

  stats(): StoreStats {
    const { commit: commits, record: recorded } = this.#written;
    return { ...this.#backend.writes, commits, recorded, sessions: this.#backend.sessionCount() };
  }

  list(request: ListRequest): SessionPage {
    return listStored(this.#backend, request);
  }

  unfinished(): readonly string[] {
    return this.#backend.keys("journals", undefined, Number.MAX_SAFE_INTEGER);
  }

  /** Writes and answers what is waiting, then closes the lanes and the backend. */
  close(): Promise<void> {
    this.#closed ??= this.#shutDown();
    return this.#closed;
  }

  async #shutDown(): Promise<void> {
    this.#flush();
    await this.maintenance.ended();
    // The answers must leave before their lanes close.
    await loopTurn(this.#clock);
    for (const lane of [...this.#lanes]) lane.close();
    this.#backend.close();
  }

  /** For work that takes long: whoever else waits has its turn. */
  readonly #pause = async (): Promise<void> => {
    await loopTurn(this.#clock);
    if (this.#closed !== undefined) throw storeClosed();
  };

  #answer(method: string, payload: unknown): unknown {
    // Both sides of the lane are typed by StoreCalls; here only the name is checked.
    switch (method) {
      case "commit":
        return this.#enqueue<CommitReceipt>({ kind: "commit", commit: payload as Commit });
      case "clearJournal":
        return this.#enqueue<JournalReceipt>({ kind: "clear", ...(payload as JournalClearing) });
      case "record":
        return this.#enqueue<JournalReceipt>({
          kind: "record",
          entry: payload as JournalEntry,
          at: this.#clock.wallNow(),
        });
      case "delete":
        return this.deleteSession(payload as DeleteRequest);
    }
    if (!Object.hasOwn(READS, method)) throw new TroupeError("unknown_method", `The store has no method ${method}.`);
    const read = READS[method as ReadMethod] as (
      reader: StoreReader,
      ask: unknown,
      pause: () => Promise<void>,
    ) => unknown;
    return read(this.#backend, payload, this.#pause);
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
    if (waiting.length === 0) return;
    this.#waiting = [];
    const results = this.#write(waiting.map(({ write }) => write));
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
  #write(batch: readonly StoreWrite[]): WriteResult[] {
    try {
      return this.#backend.write(batch);
    } catch (cause) {
      return writeFailed(batch, cause);
    }
  }
}

interface WaitingWrite {
  readonly write: StoreWrite;
  readonly resolve: (receipt: WriteReceipt) => void;
  readonly reject: (error: TroupeError) => void;
}
