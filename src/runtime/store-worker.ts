import { MessageChannel, type MessagePort } from "node:worker_threads";
import {
  acquireStoreLock,
  type StoreLock,
  type StoreOptions,
  type StoreService,
  type StoreStats,
} from "../store/index.js";
import { Thread } from "./threads.js";

const CLOSE_MS = 10_000;

/** The store's thread. It is asked to end, never stopped: a write cut in the middle would take the process with it. */
export class StoreWorker {
  readonly #thread: Thread<StoreService>;
  readonly #lock: StoreLock | undefined;

  private constructor(thread: Thread<StoreService>, lock: StoreLock | undefined) {
    this.#thread = thread;
    this.#lock = lock;
  }

  static async start(options: StoreOptions): Promise<StoreWorker> {
    const lock = "path" in options ? acquireStoreLock(options.path) : undefined;
    const worker = new StoreWorker(new Thread<StoreService>({ kind: "store", name: "Store worker" }), lock);
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
    await this.#thread.caller.to.attach({ port: port1 }, { transfer: [port1] });
    return port2;
  }

  stats(): Promise<StoreStats> {
    return this.#thread.caller.to.stats(undefined);
  }

  /** Sessions whose last turn was begun and not finished. */
  unfinished(): Promise<readonly string[]> {
    return this.#thread.caller.to.unfinished(undefined);
  }

  async close(): Promise<void> {
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

function ignore(): void {}
