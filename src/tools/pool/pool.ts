import type { ResourceLimits } from "node:worker_threads";
import { type Clock, onAbort } from "../../async/index.js";
import { aborted, type Json, TroupeError, toolUnavailable } from "../../kernel/index.js";
import { type Deadline, Deadlines, decodeError, type ThreadRights } from "../../wire/index.js";
import { type HomeContext, type RegisteredTool, Slots, type ToolHome } from "../dispatch/index.js";
import type { NoteTaker, ToolDescription } from "../tool-code/index.js";
import { BEGUN_CELL, type CheckTask, type JobTask, type PoolAnswer, type PoolTask, STOP_CELL } from "./pool-calls.js";
import { PoolThreads } from "./pool-threads.js";

export interface ToolPoolOptions {
  /** The built thread entry, `dist/workers/tool.js`. */
  readonly entry: URL;
  readonly maxThreads: number;
  readonly clock: Clock;
  /** Told what tools say before they answer; default: nobody is. */
  readonly noted?: NoteTaker;
  /** What its threads may do; default: what this thread may, without its environment. */
  readonly rights?: ThreadRights;
  /** Tasks that run at once, when other pools count too; default: as many as it has threads. */
  readonly slots?: Slots;
  /** How long a thread without a task stays; default 10 seconds. */
  readonly idleMs?: number;
  /** Per thread; default 256 MB of old generation. */
  readonly resourceLimits?: ResourceLimits;
}

/** When a task is to stop: told at the abort, its thread stopped when the grace is over. */
export interface Ending {
  readonly signal: AbortSignal;
  readonly graceMs: number;
}

const LOAD_MS = 30_000;
const DEFAULT_LIMITS: ResourceLimits = { maxOldGenerationSizeMb: 256 };
const IDLE_MS = 10_000;

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
    this.#slots = options.slots ?? new Slots(options.maxThreads);
  }

  /** What the model is told about the tool a module exports. Imports the module on a pool thread, never here. */
  async describe(
    moduleUrl: string,
    { loadMs = LOAD_MS, options }: { readonly loadMs?: number; readonly options?: unknown } = {},
  ): Promise<ToolDescription> {
    const controller = new AbortController();
    const deadline = this.#deadlines.add(loadMs, () => controller.abort(toolLoadTimeout(moduleUrl, loadMs)));
    try {
      const ending = { signal: controller.signal, graceMs: 0 };
      const described = await this.#submit({ kind: "describe", module: moduleUrl, options, stop: newCells() }, ending);
      return described as ToolDescription; // the pool thread's answer to "describe"
    } finally {
      this.#deadlines.cancel(deadline);
    }
  }

  run(
    tool: RegisteredTool,
    args: Json,
    { sessionId, turnId, callId, asks, signal, cancelGraceMs: graceMs }: HomeContext,
    options?: unknown,
  ): Promise<unknown> {
    if (tool.home.kind !== "pool") {
      return Promise.reject(notOfThePool(tool.spec.name));
    }
    const { module } = tool.home;
    const stop = newCells();
    const task = {
      kind: "run",
      module,
      options,
      args,
      sessionId,
      turnId,
      callId,
      stop,
      ...(asks && { asks }),
    } as const;
    return this.#submit(task, { signal, graceMs });
  }

  /** Gives a run of a plugin's job a thread; resolves when the port is closed. */
  async job(task: Omit<JobTask, "kind" | "stop" | "notes">, ending: Ending): Promise<void> {
    await this.#submit({ kind: "job", ...task, stop: newCells() }, ending);
  }

  /** Why arguments do not fit a schema; undefined when they do. */
  async check(task: CheckTask, ending: Ending): Promise<string | undefined> {
    return (await this.#submit(task, ending)) as string | undefined; // the pool thread's answer to "check"
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

  async #post(task: PoolTask, ending: Ending, again = 0): Promise<PoolAnswer> {
    const threads = this.#threads?.broken === false ? this.#threads : await this.#start();
    if (this.#closing !== undefined) throw poolClosed();
    const { signal } = ending;
    if (signal.aborted) throw aborted(signal);
    const { kill, over } = this.#stopping(task, ending, threads.hasIdle);
    try {
      return await threads.run(task, kill);
    } catch (error) {
      // What a call before it left behind held or ended the thread: the next one has this call.
      if (
        task.kind !== "check" &&
        // Its port has gone to the thread that did not begin it.
        task.kind !== "job" &&
        again < MOST_AGAIN &&
        this.#closing === undefined &&
        takeBack(task) &&
        !signal.aborted
      )
        return this.#post({ ...task, stop: newCells() }, ending, again + 1);
      throw signal.aborted || this.#closing === undefined ? error : poolClosed();
    } finally {
      over();
    }
  }

  /**
   * Tells the task when it is to stop. `kill` aborts when it has not by the end of its grace, and when a thread that was
   * idle does not begin it: then it is taken back.
   */
  #stopping(task: PoolTask, { signal, graceMs }: Ending, wasIdle: boolean): { kill: AbortSignal; over: () => void } {
    const killer = new AbortController();
    const begins =
      task.kind !== "check" && wasIdle
        ? this.#deadlines.add(BEGIN_MS, () => {
            if (takeBack(task)) killer.abort();
          })
        : undefined;
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
      if (begins !== undefined) this.#deadlines.cancel(begins);
    };
    return { kill: killer.signal, over };
  }

  /** Calls that come together share one start. */
  #start(): Promise<PoolThreads> {
    this.#starting ??= PoolThreads.start({ resourceLimits: DEFAULT_LIMITS, idleMs: IDLE_MS, ...this.#options })
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

/** How long a thread that has nothing to do may take to begin a call. */
const BEGIN_MS = 250;

/** How often a call that no thread has begun is given to another one. */
const MOST_AGAIN = 3;

/** True when no thread has begun the call: then none will. */
function takeBack({ stop }: Exclude<PoolTask, CheckTask>): boolean {
  return Atomics.compareExchange(stop, 1, BEGUN_CELL.waiting, BEGUN_CELL.takenBack) !== BEGUN_CELL.begun;
}

function newCells(): Int32Array {
  return new Int32Array(new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT));
}

function poolClosed(): TroupeError {
  return new TroupeError("tool_pool_closed", "The tool pool is closed.");
}

function toolLoadTimeout(module: string, ms: number): TroupeError {
  return new TroupeError(
    "tool_load_timeout",
    `The tool module ${module} was not loaded within ${ms} ms: it, or a module it imports, is still in a top-level await or computing. Move what it waits for into execute, or give it more time with loadMs.`,
    { retryable: true, details: { module, loadMs: ms } },
  );
}

export function notOfThePool(name: string): TroupeError {
  return toolUnavailable(`${name} is not a tool of the pool`);
}
