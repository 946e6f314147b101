import type { ResourceLimits, Worker } from "node:worker_threads";
import type { Piscina } from "piscina";
import { type Clock, onAbort, within } from "../../async/index.js";
import { aborted, type Json, messageOf, TroupeError } from "../../kernel/index.js";
import { type Deadline, Deadlines, decodeError } from "../../wire/index.js";
import { type HomeContext, type RegisteredTool, Slots, type ToolHome } from "../dispatch/index.js";
import type { ToolDescription } from "../tool-code/index.js";
import { type PoolAnswer, type PoolTask, STOP_CELL } from "./pool-calls.js";

export interface ToolPoolOptions {
  /** The built thread entry, `dist/workers/tool.js`. */
  readonly entry: URL;
  readonly maxThreads: number;
  readonly clock: Clock;
  /** Per thread; default 256 MB of old generation. */
  readonly resourceLimits?: ResourceLimits;
}

/** When a task is to stop: told at the abort, its thread stopped when the grace is over. */
interface Ending {
  readonly signal: AbortSignal;
  readonly graceMs: number;
}

const DESCRIBE_MS = 30_000;
const DEFAULT_LIMITS: ResourceLimits = { maxOldGenerationSizeMb: 256 };

/**
 * Runs tool modules on threads of their own, one task per thread at a time. A call that is aborted and does not end in
 * its grace has its thread stopped, so a tool that loops for ever costs its own call and nothing else. Threads start when
 * first needed and stop when idle.
 *
 * A thread is not a sandbox: it keeps a tool's crash, loop or memory away from others, not its malice.
 *
 * @example
 * const pool = new ToolPool({ entry: new URL("../workers/tool.js", import.meta.url), maxThreads: 4, clock });
 * const tool = registerTool("weather", await pool.describe(url), { kind: "pool", module: url });
 * await pool.close();
 */
export class ToolPool implements ToolHome {
  readonly #options: ToolPoolOptions;
  readonly #slots: Slots;
  readonly #deadlines: Deadlines;
  #starting: Promise<PoolThreads> | undefined;
  #threads: PoolThreads | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: ToolPoolOptions) {
    this.#options = options;
    this.#deadlines = new Deadlines(options.clock);
    this.#slots = new Slots(options.maxThreads);
  }

  /** What the model is told about the tool a module exports. Imports the module on a pool thread, never here. */
  async describe(moduleUrl: string, { timeoutMs = DESCRIBE_MS } = {}): Promise<ToolDescription> {
    const controller = new AbortController();
    const deadline = this.#deadlines.add(timeoutMs, () =>
      controller.abort(
        new TroupeError("tool_module_invalid", `${moduleUrl} did not load within ${timeoutMs} ms.`, {
          details: { timeoutMs },
        }),
      ),
    );
    try {
      const ending = { signal: controller.signal, graceMs: 0 };
      const described = await this.#submit({ kind: "describe", module: moduleUrl }, ending);
      return described as ToolDescription; // the pool thread's answer to "describe"
    } finally {
      this.#deadlines.cancel(deadline);
    }
  }

  run(
    tool: RegisteredTool,
    args: Json,
    { sessionId, turnId, callId, signal, cancelGraceMs: graceMs }: HomeContext,
  ): Promise<unknown> {
    if (tool.home.kind !== "pool") {
      return Promise.reject(new TroupeError("tool_unavailable", `${tool.spec.name} is not a tool of the pool.`));
    }
    const { module } = tool.home;
    const stop = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    return this.#submit({ kind: "run", module, args, sessionId, turnId, callId, stop }, { signal, graceMs });
  }

  /** Threads that are alive, and tasks that run or wait. */
  stats() {
    return { threads: this.#threads?.alive ?? 0, running: this.#slots.taken, waiting: this.#slots.waiting };
  }

  /** Stops every thread, also busy ones; calls in flight and later ones reject with `tool_pool_closed`. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #submit(task: PoolTask, ending: Ending): Promise<unknown> {
    if (this.#closing !== undefined) throw poolClosed();
    await this.#slots.take(ending.signal);
    try {
      const answer = await this.#post(task, ending);
      if (answer.ok) return answer.value;
      throw decodeError(answer.error);
    } finally {
      this.#slots.free();
    }
  }

  async #post(task: PoolTask, ending: Ending): Promise<PoolAnswer> {
    const threads = this.#threads?.broken === false ? this.#threads : await this.#start();
    if (this.#closing !== undefined) throw poolClosed();
    const { signal } = ending;
    if (signal.aborted) throw aborted(signal);
    const { kill, over } = this.#stopping(task, ending);
    try {
      return await threads.run(task, kill);
    } catch (error) {
      throw signal.aborted || this.#closing === undefined ? error : poolClosed();
    } finally {
      over();
    }
  }

  /** Tells the task when it is to stop. `kill` aborts when it has not by the end of its grace. */
  #stopping(task: PoolTask, { signal, graceMs }: Ending): { kill: AbortSignal; over: () => void } {
    const killer = new AbortController();
    const kill = () => killer.abort(signal.reason);
    let grace: Deadline | undefined;
    const letGo = onAbort(signal, () => {
      if (task.kind === "run") {
        Atomics.store(task.stop, 0, STOP_CELL.stopped);
        Atomics.notify(task.stop, 0);
      }
      if (graceMs === 0) kill();
      else grace = this.#deadlines.add(graceMs, kill);
    });
    const over = () => {
      letGo();
      if (grace !== undefined) this.#deadlines.cancel(grace);
    };
    return { kill: killer.signal, over };
  }

  /** Calls that come together share one start. */
  #start(): Promise<PoolThreads> {
    this.#starting ??= PoolThreads.start({ resourceLimits: DEFAULT_LIMITS, ...this.#options })
      .then((threads) => {
        this.#threads = threads;
        return threads;
      })
      .finally(() => {
        this.#starting = undefined;
      });
    return this.#starting;
  }

  async #close(): Promise<void> {
    this.#deadlines.clear();
    this.#slots.refuse(poolClosed());
    await this.#starting;
    await this.#threads?.stop();
  }
}

function poolClosed(): TroupeError {
  return new TroupeError("tool_pool_closed", "The tool pool is closed.");
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

  static async start({ entry, maxThreads, resourceLimits, clock }: Required<ToolPoolOptions>): Promise<PoolThreads> {
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
