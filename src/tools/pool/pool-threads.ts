import type { ResourceLimits, Worker } from "node:worker_threads";
import type { Piscina } from "piscina";
import { type Clock, within } from "../../async/index.js";
import { aborted, messageOf, TroupeError } from "../../kernel/index.js";

import type { PoolAnswer, PoolTask } from "./pool-calls.js";

export interface PoolThreadsOptions {
  readonly entry: URL;
  readonly maxThreads: number;
  readonly resourceLimits: ResourceLimits;
  readonly clock: Clock;
}

const IDLE_MS = 10_000;
/** A thread inside a native call ends only when that call does; stopping does not wait for it for ever. */
const STOP_MS = 5_000;

/**
 * Piscina with its edges rounded off. Never give it more tasks than threads: Piscina strands what is in its queue when
 * an abort stops the last thread. A task rejects only when it was aborted or its thread is gone.
 */
export class PoolThreads {
  readonly #piscina: Piscina<PoolTask, PoolAnswer>;
  readonly #clock: Clock;
  /** Every thread that has not exited yet; Piscina forgets those it is still stopping. */
  readonly #alive = new Set<Worker>();
  #inFlight = 0;
  /** Why a thread died that had no task. */
  #fault: unknown;
  #broken = false;

  private constructor(piscina: Piscina<PoolTask, PoolAnswer>, clock: Clock) {
    this.#piscina = piscina;
    this.#clock = clock;
    // Without a listener, a thread that dies with no task to blame would end this thread too.
    piscina.on("error", (fault) => {
      this.#fault = fault;
    });
  }

  static async start({ entry, maxThreads, resourceLimits, clock }: PoolThreadsOptions): Promise<PoolThreads> {
    // Loaded here, because every thread that runs tools imports this room and few have a pool.
    const { Piscina } = await import("piscina");
    const piscina = new Piscina<PoolTask, PoolAnswer>({
      filename: entry.href,
      minThreads: 0,
      maxThreads,
      idleTimeout: IDLE_MS,
      // The default parks an idle thread in Atomics.wait, where neither timers nor sockets of a tool move.
      atomics: "disabled",
      env: {},
      resourceLimits,
      recordTiming: false,
    });
    return new PoolThreads(piscina, clock);
  }

  /** Threads that exist, also those being stopped. */
  get alive(): number {
    return this.#alive.size;
  }

  /** No thread could start: this object is of no further use. */
  get broken(): boolean {
    return this.#broken;
  }

  async run(task: PoolTask, signal: AbortSignal): Promise<PoolAnswer> {
    this.#inFlight++;
    try {
      const answer = this.#piscina.run(task, { signal });
      for (const thread of this.#piscina.threads) this.#watch(thread);
      return await answer;
    } catch (cause) {
      throw signal.aborted ? aborted(signal) : this.#lossOf(cause);
    } finally {
      this.#inFlight--;
    }
  }

  /** Ends every thread, also busy ones. */
  async stop(): Promise<void> {
    const exits = [...this.#alive].map((thread) => new Promise((resolve) => thread.once("exit", resolve)));
    const destroyed = this.#piscina.destroy();
    await within(this.#clock, STOP_MS, Promise.all([destroyed, ...exits]));
    // Whatever is left must not keep the host from ending.
    for (const thread of this.#alive) thread.unref();
  }

  #watch(thread: Worker): void {
    if (this.#alive.has(thread)) return;
    this.#alive.add(thread);
    thread.once("exit", () => {
      this.#alive.delete(thread);
      // After Piscina told the task it knew to be on the thread.
      this.#clock.soon(() => this.#failStranded());
    });
  }

  /** A thread that dies while starting leaves its task in Piscina's queue with nothing to wake it. */
  #failStranded(): void {
    if (this.#inFlight === 0 || this.#piscina.threads.length > 0) return;
    this.#broken = true;
    void this.#piscina.destroy();
  }

  #lossOf(cause: unknown): TroupeError {
    if (this.#broken) {
      return lost(`The thread of the tool could not start: ${messageOf(this.#fault ?? "it ended")}`, this.#fault);
    }
    if (!(cause instanceof Error)) return lost(ENDED, cause);
    // A DOMException, whose code is a number.
    if (cause.name === "DataCloneError") {
      return new TroupeError("invalid_tool_args", `The arguments cannot cross a thread: ${cause.message}`, { cause });
    }
    if ((cause as NodeJS.ErrnoException).code === "ERR_WORKER_OUT_OF_MEMORY") {
      return new TroupeError("tool_out_of_memory", "The tool used more memory than its thread may have.", { cause });
    }
    return lost(ENDED, cause);
  }
}

const ENDED = "The thread of the tool ended before the tool answered.";

function lost(message: string, cause: unknown): TroupeError {
  return new TroupeError("tool_worker_lost", message, { retryable: true, cause });
}
