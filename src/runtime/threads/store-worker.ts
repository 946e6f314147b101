import { MessageChannel, type MessagePort, receiveMessageOnPort } from "node:worker_threads";
import { type Clock, ignore, within } from "../../async/index.js";
import { messageOf, TroupeError } from "../../kernel/index.js";
import {
  acquireStoreLock,
  type LeftWork,
  type StoreLock,
  type StoreOptions,
  type StoreProgress,
  type StoreService,
  storeLost,
  type WorkOptions,
} from "../../store/index.js";
import type { CallOptions } from "../../wire/index.js";
import { NO_DEADLINE_MS, Thread, type ThreadOptions } from "./threads.js";

const CLOSE_MS = 10_000;

interface StoreWorkerParts {
  readonly clock: Clock;
  readonly env?: ThreadOptions["env"];
  readonly onLost: (error: TroupeError) => void;
  /** Told while the store is brought up to date. */
  readonly onProgress?: WorkOptions["onProgress"];
}

type StoreMethod = keyof StoreService;
type RequestOf<M extends StoreMethod> = Parameters<StoreService[M]>[0];
type AnswerOf<M extends StoreMethod> = Awaited<ReturnType<StoreService[M]>>;

/** The store's thread. It is asked to end, never stopped: a write cut in the middle would take the process with it. */
export class StoreWorker {
  readonly #clock: Clock;
  readonly #thread: Thread<StoreService>;
  #lock: StoreLock | undefined;
  #closing = false;
  /** What was left to do when the store was closed. */
  left: LeftWork = {
    firstWake: null,
    occurrences: false,
    tasks: false,
    endedTasks: false,
    firstTaskWake: null,
    monitors: false,
  };

  private constructor({ clock, env, onLost }: StoreWorkerParts) {
    this.#clock = clock;
    const thread = new Thread<StoreService>({ kind: "store", name: "Store worker", clock, env });
    this.#thread = thread;
    void thread.exited.then(({ error }) => {
      if (!this.#closing) onLost(storeLost(error));
    });
  }

  static async start(options: StoreOptions, parts: StoreWorkerParts): Promise<StoreWorker> {
    // Its thread loads while the folder is being locked, and so do those that are started in the same breath.
    const worker = new StoreWorker(parts);
    await undefined;
    try {
      if ("path" in options) worker.#lock = acquireStoreLock(options.path, parts.clock);
      // It takes as long as the store is large: every page is looked at, and an older layout is brought up to date.
      worker.left = await worker.follow("open", options, parts);
      return worker;
    } catch (error) {
      await worker.close();
      throw error;
    }
  }

  get messages(): number {
    return this.#thread.messages;
  }

  /** A session worker's end of a new lane to the store. `replaces`: the owner that had its place, and is no more. */
  async connect(replaces: string | undefined): Promise<{ readonly port: MessagePort; readonly owner: string }> {
    const { port1, port2 } = new MessageChannel();
    const owner = await this.ask("attach", { port: port1, replaces }, { transfer: [port1] });
    return { port: port2, owner };
  }

  async ask<M extends StoreMethod>(method: M, request: RequestOf<M>, options?: CallOptions): Promise<AnswerOf<M>> {
    try {
      return await this.#thread.caller.call<AnswerOf<M>>(method, request, options);
    } catch (error) {
      throw error instanceof TroupeError && error.code === "worker_lost" ? storeLost(error) : error;
    }
  }

  /** Makes a call that may take long: it is over when the store has stopped, also when it is aborted. */
  async follow<M extends StoreMethod>(
    method: M,
    request: RequestOf<M>,
    { signal, onProgress }: WorkOptions,
  ): Promise<AnswerOf<M>> {
    const options = { deadlineMs: NO_DEADLINE_MS, signal, cooperative: true };
    if (onProgress === undefined) return this.ask(method, request, options);
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
      return await this.ask(method, { ...request, progress: port2 }, { ...options, transfer: [port2] });
    } finally {
      // What was told before the answer may still be on its way here.
      for (let told = receiveMessageOnPort(port1); told !== undefined; told = receiveMessageOnPort(port1))
        tell(told.message as StoreProgress);
      port1.close();
    }
  }

  /** Ends the thread as an error of its own would. */
  async crash(): Promise<void> {
    // The thread may be gone before its answer has left.
    await this.ask("crash", undefined).catch(ignore);
    await this.#thread.exited;
  }

  async close(): Promise<void> {
    this.#closing = true;
    const ended = this.#thread.caller.to.close(undefined, { deadlineMs: CLOSE_MS }).then(() => this.#thread.exited);
    await within(this.#clock, CLOSE_MS, ended);
    this.#thread.abandon();
    this.#lock?.release();
  }
}
