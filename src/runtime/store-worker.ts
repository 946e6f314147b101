import { MessageChannel, type MessagePort } from "node:worker_threads";
import { TroupeError } from "../kernel/index.js";
import {
  acquireStoreLock,
  type StoreLock,
  type StoreOptions,
  type StoreService,
  type StoreStats,
  storeLost,
} from "../store/index.js";
import { Thread } from "./threads.js";

const CLOSE_MS = 10_000;

/** The store's thread. It is asked to end, never stopped: a write cut in the middle would take the process with it. */
export class StoreWorker {
  readonly #thread: Thread<StoreService>;
  readonly #lock: StoreLock | undefined;
  #closing = false;

  private constructor(thread: Thread<StoreService>, lock: StoreLock | undefined, onLost: (error: TroupeError) => void) {
    this.#thread = thread;
    this.#lock = lock;
    void thread.exited.then(({ error }) => {
      if (!this.#closing) onLost(storeLost(error));
    });
  }

  static async start(options: StoreOptions, onLost: (error: TroupeError) => void): Promise<StoreWorker> {
    const lock = "path" in options ? acquireStoreLock(options.path) : undefined;
    const worker = new StoreWorker(new Thread<StoreService>({ kind: "store", name: "Store worker" }), lock, onLost);
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
    await this.#thread.caller.to.crash(undefined);
    await this.#thread.exited;
  }

  async close(): Promise<void> {
    this.#closing = true;
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, CLOSE_MS);
    });
    const ended = this.#thread.caller.to.close(undefined, { deadlineMs: CLOSE_MS }).then(() => this.#thread.exited);
    await Promise.race([ended.catch(ignore), patience]);
    clearTimeout(timer);
    this.#thread.abandon();
    this.#lock?.release();
  }
}

async function orLost<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    throw error instanceof TroupeError && error.code === "worker_lost" ? storeLost(error) : error;
  }
}

function ignore(): void {}
