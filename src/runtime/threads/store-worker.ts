import { MessageChannel, type MessagePort, receiveMessageOnPort } from "node:worker_threads";
import { type Clock, ignore, within } from "../../async/index.js";
import { messageOf, TroupeError } from "../../kernel/index.js";
import {
  acquireStoreLock,
  type DeleteRequest,
  type ExportRequest,
  type ImportedSession,
  type ImportRequest,
  type ListRequest,
  type PrunePolicy,
  type PruneReport,
  type SessionPage,
  type StoreLock,
  type StoreOptions,
  type StoreProgress,
  type StoreService,
  type StoreStats,
  storeLost,
  type WorkOptions,
} from "../../store/index.js";
import type { CallOptions } from "../../wire/index.js";
import { NO_DEADLINE_MS, Thread } from "./threads.js";

const CLOSE_MS = 10_000;

interface StoreWorkerParts {
  readonly clock: Clock;
  readonly onLost: (error: TroupeError) => void;
}

/** The store's thread. It is asked to end, never stopped: a write cut in the middle would take the process with it. */
export class StoreWorker {
  readonly #clock: Clock;
  readonly #thread: Thread<StoreService>;
  readonly #lock: StoreLock | undefined;
  #closing = false;

  private constructor({ clock, onLost }: StoreWorkerParts, lock: StoreLock | undefined) {
    this.#clock = clock;
    const thread = new Thread<StoreService>({ kind: "store", name: "Store worker", clock });
    this.#thread = thread;
    this.#lock = lock;
    void thread.exited.then(({ error }) => {
      if (!this.#closing) onLost(storeLost(error));
    });
  }

  static async start(options: StoreOptions, parts: StoreWorkerParts): Promise<StoreWorker> {
    const lock = "path" in options ? acquireStoreLock(options.path, parts.clock) : undefined;
    const worker = new StoreWorker(parts, lock);
    try {
      await worker.#thread.caller.to.open(options);
      return worker;
    } catch (error) {
      await worker.close();
      throw error;
    }
  }

  get messages(): number {
    return this.#thread.messages;
  }

  /** A session worker's end of a new lane to the store. */
  async connect(): Promise<MessagePort> {
    const { port1, port2 } = new MessageChannel();
    await orLost(this.#thread.caller.to.attach({ port: port1 }, { transfer: [port1] }));
    return port2;
  }

  stats(): Promise<StoreStats> {
    return orLost(this.#thread.caller.to.stats(undefined));
  }

  /** Sessions whose last turn was begun and not finished. */
  unfinished(): Promise<readonly string[]> {
    return orLost(this.#thread.caller.to.unfinished(undefined));
  }

  /** Ends the thread as an error of its own would. */
  async crash(): Promise<void> {
    // The thread may be gone before its answer has left.
    await this.#thread.caller.to.crash(undefined).catch(ignore);
    await this.#thread.exited;
  }

  list(request: ListRequest): Promise<SessionPage> {
    return orLost(this.#thread.caller.to.list(request));
  }

  deleteSession(request: DeleteRequest): Promise<boolean> {
    return orLost(this.#thread.caller.to.deleteSession(request, { deadlineMs: NO_DEADLINE_MS }));
  }

  prune(policy: PrunePolicy, work: WorkOptions): Promise<PruneReport> {
    return followed(work, (progress, options) => this.#thread.caller.to.prune({ ...policy, ...progress }, options));
  }

  async exportSession(request: ExportRequest, work: WorkOptions): Promise<Uint8Array | undefined> {
    const { bytes } = await followed(work, (progress, options) =>
      this.#thread.caller.to.exportSession({ ...request, ...progress }, options),
    );
    return bytes;
  }

  importSession(request: ImportRequest, work: WorkOptions): Promise<ImportedSession> {
    return followed(work, (progress, options) =>
      this.#thread.caller.to.importSession({ ...request, ...progress }, options),
    );
  }

  backup(folder: string, { signal }: WorkOptions): Promise<void> {
    return orLost(this.#thread.caller.to.backup({ folder }, { deadlineMs: NO_DEADLINE_MS, signal, cooperative: true }));
  }

  async close(): Promise<void> {
    this.#closing = true;
    const ended = this.#thread.caller.to.close(undefined, { deadlineMs: CLOSE_MS }).then(() => this.#thread.exited);
    await within(this.#clock, CLOSE_MS, ended);
    this.#thread.abandon();
    this.#lock?.release();
  }
}

type Progress = { readonly progress?: MessagePort };

/** Makes a call that may take long: it is over when the store has stopped, also when it is aborted. */
async function followed<T>(
  { signal, onProgress }: WorkOptions,
  call: (progress: Progress, options: CallOptions) => Promise<T>,
): Promise<T> {
  const options = { deadlineMs: NO_DEADLINE_MS, signal, cooperative: true };
  if (onProgress === undefined) return orLost(call({}, options));
  const { port1, port2 } = new MessageChannel();
  const tell = (progress: StoreProgress) => {
    try {
      onProgress(progress);
    } catch (error) {
      // The host's own function: what it throws is its own affair, but not the work's end.
      process.emitWarning(`onProgress threw: ${messageOf(error)}`);
    }
  };
  port1.on("message", tell);
  try {
    return await orLost(call({ progress: port2 }, { ...options, transfer: [port2] }));
  } finally {
    // What was told before the answer may still be on its way here.
    for (let told = receiveMessageOnPort(port1); told !== undefined; told = receiveMessageOnPort(port1))
      tell(told.message as StoreProgress);
    port1.close();
  }
}

async function orLost<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    throw error instanceof TroupeError && error.code === "worker_lost" ? storeLost(error) : error;
  }
}
