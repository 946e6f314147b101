import { MessageChannel } from "node:worker_threads";
import type { Clock, Timer } from "../../async/index.js";
import { Lane, setEndedBy, workerLost } from "../../wire/index.js";
import type { Watchdog } from "../watch/index.js";
import type { LoadedThread } from "./loaded-threads.js";
import { NO_DEADLINE_MS, wayOf } from "./threads.js";

/** What a job asks its host for, or tells it. */
export interface JobServer {
  serve(lane: Lane, method: string, payload: unknown): unknown;
  noted(lane: Lane, payload: unknown): void;
}

interface JobHostParts {
  readonly clock: Clock;
  readonly watchdog: Watchdog;
  readonly blockedMs: number;
  /** In errors. */
  readonly name: string;
  readonly load: () => Promise<LoadedThread>;
}

/** A thread without a job ends after this long. */
const IDLE_MS = 10_000;

/**
 * The thread that runs the jobs of a group of plugins: beside those that run their hooks and tools, so that a job that
 * computes, blocks or crashes hurts no turn. It starts with the first job and ends when it has none.
 */
export class JobHost {
  readonly #parts: JobHostParts;
  #starting: Promise<Lane> | undefined;
  #loaded: LoadedThread | undefined;
  #running = 0;
  #idle: Timer | undefined;
  #closed = false;

  constructor(parts: JobHostParts) {
    this.#parts = parts;
  }

  get thread(): LoadedThread["thread"] | undefined {
    return this.#loaded?.thread;
  }

  /** The lane that runs are ordered on. Whoever has it says when it needs it no more. */
  async take(server: JobServer): Promise<Lane> {
    this.#running++;
    this.#idle?.cancel();
    this.#idle = undefined;
    try {
      this.#starting ??= this.#start(server);
      return await this.#starting;
    } catch (error) {
      this.#starting = undefined;
      this.free();
      throw error;
    }
  }

  free(): void {
    this.#running--;
    if (this.#running > 0 || this.#loaded === undefined) return;
    this.#idle = this.#parts.clock.timeout(IDLE_MS, () => void this.end("asked")).unref();
  }

  /** Ends the thread; the next job starts another one. */
  async end(by: Parameters<typeof setEndedBy>[1]): Promise<void> {
    const loaded = this.#loaded;
    if (loaded === undefined) return;
    setEndedBy(loaded.stage, by);
    // At once: no job is begun on a thread that ends.
    this.#loaded = undefined;
    this.#starting = undefined;
    await loaded.thread.terminate();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#idle?.cancel();
    await this.#starting?.catch(() => undefined);
    await this.end("asked");
  }

  async #start(server: JobServer): Promise<Lane> {
    const { clock, watchdog, blockedMs, name, load } = this.#parts;
    const loaded = await load();
    const { thread } = loaded;
    const { port1, port2 } = new MessageChannel();
    const lane: Lane = new Lane(port1, {
      name,
      clock,
      foreign: true,
      serve: (method, payload) => server.serve(lane, method, payload),
      onNote: (topic, payload) => {
        if (topic === "progress") server.noted(lane, payload);
      },
      onLost: () => this.#gone(loaded),
    });
    // The thread keeps the process alive, and not the port beside it.
    port1.unref();
    const unwatch = watchdog.watch({
      ...loaded,
      blockedMs,
      busyShare: () => thread.busyShare(),
      ping: () => thread.uncounted(thread.caller.to.ping(undefined, { deadlineMs: NO_DEADLINE_MS })),
      onBlocked: () => void this.end("blocked"),
    });
    void thread.exited.then((exit) => {
      unwatch();
      setEndedBy(loaded.stage, wayOf(exit));
      lane.lose(workerLost(thread.name, `ended (${wayOf(exit)})`, { cause: exit.error }));
    });
    this.#loaded = loaded;
    try {
      await thread.caller.to.attachJobs({ port: port2 }, { transfer: [port2], deadlineMs: NO_DEADLINE_MS });
      if (this.#closed) throw workerLost(thread.name);
      return lane;
    } catch (error) {
      await thread.terminate();
      throw error;
    }
  }

  #gone(loaded: LoadedThread): void {
    if (this.#loaded !== loaded) return;
    this.#loaded = undefined;
    this.#starting = undefined;
    this.#idle?.cancel();
    void loaded.thread.terminate();
  }
}
