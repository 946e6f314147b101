import { MessageChannel } from "node:worker_threads";
import type { Clock } from "../../async/index.js";
import { type Json, TroupeError, taskJobUnknown, unknownMethod } from "../../kernel/index.js";
import { type JobAnswer, type JobAsk, type JobCall, type JobProgress, Slots, ToolPool } from "../../tools/index.js";
import { Lane, type LaneCallOptions, workerLost } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";
import { type JobServer, workerEntry } from "../threads/index.js";

/** A run of a task's job. What it says counts while its task is at this run. */
export interface TaskRun {
  readonly sessionId: string;
  readonly id: string;
  readonly plugin: string;
  readonly run: number;
  readonly signal: AbortSignal;
}

interface ThreadsParts {
  readonly clock: Clock;
  readonly crew: () => Pick<Runtime["crew"], "jobsOf">;
  /** What a run asks for. */
  readonly serve: (run: TaskRun, method: string, args: readonly unknown[]) => Promise<unknown>;
  readonly noted: (run: TaskRun, progress: Json) => void;
}

type RunOptions = { readonly signal: AbortSignal; readonly graceMs: number };

/** Jobs that run at once. */
const MOST_RUNNING = 256;
/** Jobs in the pool that run at once, of plugins whose threads may do the same. */
const POOL_THREADS = 4;

/** Where jobs run: on a thread of their plugin's, or each on a pool thread of its own. */
export class JobThreads implements JobServer {
  readonly #parts: ThreadsParts;
  /** By the rights of their threads, as JSON. */
  readonly #pools = new Map<string, ToolPool>();
  readonly #slots = new Slots(MOST_RUNNING);
  /** By what a run was ordered with. */
  readonly #runs = new WeakMap<object, TaskRun>();

  constructor(parts: ThreadsParts) {
    this.#parts = parts;
  }

  /** Throws `task_job_unknown` for a job the plugin does not have. */
  check(plugin: string, job: string): void {
    const { jobs } = this.#parts.crew().jobsOf(plugin);
    if (jobs.some(({ name }) => name === job)) return;
    throw taskJobUnknown(
      plugin,
      job,
      jobs.map(({ name }) => name),
    );
  }

  /** Runs a job when there is a place for one more. Rejects when its thread was lost, or there is none to be had. */
  async run(call: Omit<JobCall, "member">, run: TaskRun, options: RunOptions): Promise<JobAnswer> {
    await this.#slots.take(options.signal);
    try {
      return await this.#run(call, run, options);
    } finally {
      this.#slots.free();
    }
  }

  async #run(call: Omit<JobCall, "member">, run: TaskRun, options: RunOptions): Promise<JobAnswer> {
    const place = this.#parts.crew().jobsOf(run.plugin);
    this.check(run.plugin, call.job);
    if (place.jobs.some(({ name, pool }) => name === call.job && pool === true))
      return this.#inPool(call, run, options);
    const host = place.host();
    const lane = await host.take(this);
    try {
      return await this.#order(lane, { ...call, member: place.member }, run, options);
    } finally {
      host.free();
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#pools.values()].map((pool) => pool.close()));
  }

  async serve(lane: Lane, method: string, payload: unknown): Promise<unknown> {
    if (method !== "host") throw unknownMethod("The main thread", method);
    const [call, asked, args] = payload as JobAsk;
    const run = this.#runOf(lane, call);
    if (run === undefined || run.signal.aborted) throw taskOver();
    return this.#parts.serve(run, asked, args);
  }

  noted(lane: Lane, payload: unknown): void {
    const [call, progress] = payload as JobProgress;
    const run = this.#runOf(lane, call);
    if (run !== undefined && !run.signal.aborted) this.#parts.noted(run, progress);
  }

  #runOf(lane: Lane, call: number): TaskRun | undefined {
    const waiting = lane.waiting(call);
    return waiting && this.#runs.get(waiting.payload as object);
  }

  #order(lane: Lane, call: JobCall, run: TaskRun, options: LaneCallOptions): Promise<JobAnswer> {
    this.#runs.set(call, run);
    return lane.call<JobAnswer>("run", call, options);
  }

  async #inPool(call: Omit<JobCall, "member">, run: TaskRun, { signal, graceMs }: RunOptions): Promise<JobAnswer> {
    const { entry } = this.#parts.crew().jobsOf(run.plugin);
    const { port1, port2 } = new MessageChannel();
    const lane: Lane = new Lane(port1, {
      name: `The jobs of ${run.plugin} in the pool`,
      clock: this.#parts.clock,
      foreign: true,
      serve: (method, payload) => this.serve(lane, method, payload),
      onNote: (topic, payload) => {
        if (topic === "progress") this.noted(lane, payload);
      },
    });
    const { module, options } = entry;
    const thread = this.#pool(run.plugin).job({ module, options, port: port2 }, { signal, graceMs });
    // The thread is gone, or never came to the job.
    thread.catch((error: unknown) => lane.lose(error instanceof TroupeError ? error : workerLost(run.plugin)));
    try {
      return await this.#order(lane, { ...call, member: 0 }, run, { signal, graceMs });
    } finally {
      lane.close();
      await thread.catch(() => undefined);
    }
  }

  #pool(plugin: string): ToolPool {
    const { rights } = this.#parts.crew().jobsOf(plugin);
    const key = JSON.stringify([rights.execArgv, rights.env]);
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      pool = new ToolPool({ entry: workerEntry("tool"), maxThreads: POOL_THREADS, clock: this.#parts.clock, rights });
      this.#pools.set(key, pool);
    }
    return pool;
  }
}

export function taskOver(): TroupeError {
  return new TroupeError(
    "task_over",
    "The task has ended, or is run elsewhere: what this run says counts for nothing.",
  );
}
