import { setImmediate as nextTurn } from "node:timers/promises";
import type { MessagePort } from "node:worker_threads";
import { type Commit, TroupeError } from "../kernel/index.js";
import { Lane } from "../wire/index.js";
import type { CommitReceipt, CommitResult, StoreBackend } from "./contract.js";
import { isOnPath, readHistory } from "./history.js";
import { writeFailed } from "./plan.js";
import type { LoadedSession, StoreCalls, StoreStats } from "./protocol.js";

/**
 * The store worker's side of its lanes. All commits that arrive in one tick, from any number of session workers, go
 * into one transaction, and each is answered when that transaction is on the disk. While the disk is busy the next
 * batch gathers in the ports, so the busier the store, the fewer syncs per commit.
 *
 * @example
 * const server = new StoreServer(openLmdb("./data"));
 * server.attach(port);
 */
export class StoreServer {
  readonly #backend: StoreBackend;
  readonly #lanes = new Set<Lane>();
  #waiting: WaitingCommit[] = [];
  #scheduled: NodeJS.Immediate | undefined;
  #commits = 0;
  #closed: Promise<void> | undefined;

  constructor(backend: StoreBackend) {
    this.#backend = backend;
  }

  attach(port: MessagePort): void {
    if (this.#closed !== undefined) throw storeClosed();
    const lane: Lane = new Lane(port, {
      name: "session worker",
      serve: (method, payload) => this.#answer(method, payload),
      onLost: () => this.#lanes.delete(lane),
    });
    this.#lanes.add(lane);
  }

  stats(): StoreStats {
    return { ...this.#backend.writes, commits: this.#commits, sessions: this.#backend.sessionCount() };
  }

  /** Writes and answers what is waiting, then closes the lanes and the backend. */
  close(): Promise<void> {
    this.#closed ??= this.#shutDown();
    return this.#closed;
  }

  async #shutDown(): Promise<void> {
    this.#flush();
    // The answers must leave before their lanes close.
    await nextTurn();
    for (const lane of [...this.#lanes]) lane.close();
    this.#backend.close();
  }

  #answer(method: string, payload: unknown): unknown {
    if (!Object.hasOwn(this.#calls, method)) {
      throw new TroupeError("unknown_method", `The store has no method ${method}.`);
    }
    // Both sides of the lane are typed by StoreCalls; here only the name has been checked.
    const answer = this.#calls[method as keyof StoreCalls] as (ask: unknown) => unknown;
    return answer(payload);
  }

  readonly #calls: { readonly [M in keyof StoreCalls]: (ask: StoreCalls[M]["ask"]) => Answer<M> } = {
    commit: (commit) => this.#enqueue(commit),
    load: (sessionId) => this.#load(sessionId),
    head: (sessionId) => this.#backend.head(sessionId) ?? null,
    history: (leaf) => readHistory(this.#backend, leaf),
    onPath: ([leaf, node]) => isOnPath(this.#backend, leaf, node),
    component: (hash) => this.#backend.component(hash) ?? null,
    sessionIds: () => [...this.#backend.sessionIds()],
  };

  #load(sessionId: string): LoadedSession | null {
    const head = this.#backend.head(sessionId);
    return head === undefined ? null : { head, history: readHistory(this.#backend, head.leaf) };
  }

  #enqueue(commit: Commit): Promise<CommitReceipt> {
    if (this.#closed !== undefined) return Promise.reject(storeClosed());
    return new Promise((resolve, reject) => {
      this.#waiting.push({ commit, resolve, reject });
      // Immediates run after the ports of this tick have been read, so every lane's commits are in by then.
      this.#scheduled ??= setImmediate(() => this.#flush());
    });
  }

  #flush(): void {
    clearImmediate(this.#scheduled);
    this.#scheduled = undefined;
    const waiting = this.#waiting;
    if (waiting.length === 0) return;
    this.#waiting = [];
    const results = this.#write(waiting.map(({ commit }) => commit));
    waiting.forEach(({ resolve, reject }, i) => {
      const result = results[i] as CommitResult;
      if (!result.ok) {
        reject(result.error);
        return;
      }
      if (!result.replayed) this.#commits++;
      resolve({ revision: result.revision, replayed: result.replayed });
    });
  }

  // A backend answers its own failures; a backend with a bug must not leave callers waiting for ever.
  #write(batch: readonly Commit[]): CommitResult[] {
    try {
      return this.#backend.commit(batch);
    } catch (cause) {
      return writeFailed(batch, cause);
    }
  }
}

type Answer<M extends keyof StoreCalls> = StoreCalls[M]["answer"] | Promise<StoreCalls[M]["answer"]>;

interface WaitingCommit {
  readonly commit: Commit;
  readonly resolve: (receipt: CommitReceipt) => void;
  readonly reject: (error: TroupeError) => void;
}

function storeClosed(): TroupeError {
  return new TroupeError("store_closed", "The store is closed.");
}
