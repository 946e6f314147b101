import { Worker, type WorkerOptions } from "node:worker_threads";
import { type Clock, within } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import { Caller, type Service } from "../../wire/index.js";
import { workerEntry } from "./worker-entry.js";

const CONTROL_DEADLINE_MS = 30_000;
const TERMINATE_MS = 5_000;
/** For calls that take as long as what they are about. */
export const NO_DEADLINE_MS = 2 ** 31 - 1;

export interface ThreadOptions {
  readonly kind: Parameters<typeof workerEntry>[0];
  /** Names the thread in errors: "Session worker 1". */
  readonly name: string;
  readonly clock: Clock;
  readonly env?: WorkerOptions["env"];
  readonly execArgv?: readonly string[];
  readonly resourceLimits?: WorkerOptions["resourceLimits"];
}

/** How a thread ended. `error` is what it died of, when it did not end by itself. */
export interface ThreadExit {
  readonly code: number;
  readonly error: unknown;
}

/**
 * The one place that creates threads (the pool's are Piscina's own). A thread's `error`, `messageerror` and `exit` are
 * always handled here, and its death settles every call that waits for it.
 */
export class Thread<S extends Service> {
  readonly name: string;
  readonly caller: Caller<S>;
  /** Resolves when the thread has ended, whatever the cause. Never rejects. */
  readonly exited: Promise<ThreadExit>;
  readonly #clock: Clock;
  readonly #worker: Worker;
  #error: unknown;
  /** Messages this thread sent to the main thread by Comlink. */
  messages = 0;

  constructor(options: ThreadOptions) {
    this.name = options.name;
    this.#clock = options.clock;
    // A program given by --eval says what it is written in: a thread that inherits this flag cannot start from a file.
    const ofEval = process.execArgv.some((flag) => flag.startsWith("--input-type"));
    const execArgv = options.execArgv ?? (ofEval ? [] : undefined);
    this.#worker = new Worker(workerEntry(options.kind), {
      name: `troupe:${options.name}`,
      ...(options.env !== undefined && { env: options.env }),
      ...(execArgv !== undefined && { execArgv: [...execArgv] }),
      ...(options.resourceLimits !== undefined && { resourceLimits: options.resourceLimits }),
    });
    this.caller = new Caller<S>(this.#worker, {
      name: this.name,
      deadlineMs: CONTROL_DEADLINE_MS,
      clock: options.clock,
    });
    this.#worker.on("message", () => {
      this.messages++;
    });
    this.#worker.on("error", (error) => {
      this.#error = error;
    });
    this.#worker.on("messageerror", (error) => {
      this.#error = new TroupeError("wire_corrupt", `A message of ${this.name} could not be read.`, { cause: error });
      void this.terminate();
    });
    this.exited = new Promise((resolve) => {
      this.#worker.once("exit", (code) => {
        this.caller.lose(this.#error);
        resolve({ code, error: this.#error });
      });
    });
  }

  get threadId(): number {
    return this.#worker.threadId;
  }

  /**
   * Stops the thread. A thread inside a native call cannot be stopped before that call returns: after a while it is
   * left behind, unable to keep the process alive.
   */
  async terminate(): Promise<void> {
    await within(this.#clock, TERMINATE_MS, this.#worker.terminate());
    this.abandon();
  }

  /** Gives up on a thread that must not be stopped (the store's): its calls settle, the process may end. */
  abandon(): void {
    this.caller.lose(this.#error);
    this.#worker.unref();
  }
}
