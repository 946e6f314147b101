import { MessageChannel } from "node:worker_threads";
import { type Clock, ignore, persist, type Timer } from "../../async/index.js";
import { asTroupeError, TroupeError } from "../../kernel/index.js";
import type { PluginManifest } from "../../plugin/index.js";
import type { PluginWorkerService } from "../../session/index.js";
import type { ResolvedPlugin, ThreadPermissions } from "../options/index.js";
import type { SessionWorker } from "./session-worker.js";
import { NO_DEADLINE_MS, Thread } from "./threads.js";

/** How often the heartbeat is looked at. */
const LOOK_MS = 250;
/** Replacements in a row that fail to load before the plugin is given up. */
const MAX_FAILED_STARTS = 5;

const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 2_000;
const WINDOW_MS = 5_000;

interface PluginWorkerParts {
  readonly index: number;
  readonly entry: ResolvedPlugin;
  readonly clock: Clock;
  readonly permissions: ThreadPermissions;
  readonly sessionWorkers: () => readonly SessionWorker[];
}

/** A thread whose plugin is loaded. */
interface LoadedThread {
  readonly thread: Thread<PluginWorkerService>;
  /** Counts up while its event loop turns, from the first lane on. */
  readonly beat: Int32Array;
  pulse: Timer | undefined;
}

/**
 * One plugin's thread, kept alive: when it dies it is replaced, and every session worker that has called it gets a lane to
 * the new one. Sessions restore their instances from the last captured state when they next call it.
 */
export class PluginWorker {
  readonly #parts: PluginWorkerParts;
  #thread: Thread<PluginWorkerService> | undefined;
  /** The thread once its plugin is loaded, until it dies. */
  #loaded: LoadedThread | undefined;
  /** The session workers' threads that have called the plugin, each with the plugin thread it was given a lane to. */
  readonly #callers = new WeakMap<object, LoadedThread | undefined>();
  #manifest: PluginManifest | undefined;
  readonly #closed = new AbortController();
  #replacing: Promise<void> | undefined;
  /** Lazy, and not called since it was looked at: it has no thread. */
  #resting = false;
  readonly #backoff = new Backoff();
  /** What session workers are told of a plugin that was given up, also those that start later. */
  #failed: { readonly plugin: number; readonly code: string; readonly message: string } | undefined;
  restarts = 0;

  constructor(parts: PluginWorkerParts) {
    this.#parts = parts;
  }

  get manifest(): PluginManifest {
    if (this.#manifest === undefined) throw new TroupeError("plugin_not_loaded", "The plugin has not been loaded yet.");
    return this.#manifest;
  }

  get lazy(): boolean {
    return this.#parts.entry.lazy;
  }

  get threadId(): number {
    return this.#thread?.threadId ?? -1;
  }

  get messages(): number {
    return this.#thread?.messages ?? 0;
  }

  /**
   * A session of this worker has called the plugin and waits for a lane. Only the first call of each session worker's
   * thread comes here: most pairs of plugin and session worker never meet, and a lane costs both of them time.
   */
  call(worker: SessionWorker): void {
    const session = worker.configured;
    if (session === undefined || this.#closed.signal.aborted) return;
    if (!this.#callers.has(session)) this.#callers.set(session, undefined);
    if (this.#resting) {
      this.#resting = false;
      this.#replacing = this.#bringUp(() => 0);
    } else void this.#connect(worker);
  }

  /** Every session worker that has called the plugin gets a lane to its new thread, or is told that there is none. */
  async #connectAll(): Promise<void> {
    await Promise.all(this.#parts.sessionWorkers().map((worker) => this.#connect(worker)));
  }

  /**
   * Opens the hook lane between this plugin and a session worker: a port of their own, past the main thread. The plugin's
   * end first: a hook's deadline runs from when its session worker has the lane, and so not while the plugin's thread still
   * loads what it serves calls with. When one of the two dies meanwhile, its successor gets a lane of its own; that is the
   * only end of waiting, because a side that is merely late still answers.
   */
  async #connect(worker: SessionWorker): Promise<void> {
    const plugin = this.#loaded;
    const session = worker.configured;
    if (session === undefined || !this.#callers.has(session)) return;
    if (this.#failed !== undefined) return session.caller.to.failPlugin(this.#failed).catch(ignore);
    if (plugin === undefined || this.#callers.get(session) === plugin) return;
    this.#callers.set(session, plugin);
    this.#watchPulse(plugin);
    const { port1, port2 } = new MessageChannel();
    const { port1: host1, port2: host2 } = new MessageChannel();
    const stage = new Int32Array(new SharedArrayBuffer(4));
    const { index } = this.#parts;
    try {
      await plugin.thread.caller.to.attach(
        { port: port1, hostPort: host1, name: session.name, stage },
        { transfer: [port1, host1], deadlineMs: NO_DEADLINE_MS },
      );
      await session.caller.to.attachPlugin(
        { plugin: index, port: port2, hostPort: host2, stage },
        { transfer: [port2, host2], deadlineMs: NO_DEADLINE_MS },
      );
    } catch (error) {
      // Whichever side has its end of a port already learns by the other end's closing.
      port2.close();
      host2.close();
      const { code, message } = asTroupeError(error, "attach_failed");
      if (code === "worker_lost") return;
      const failed = { plugin: index, code: "plugin_unavailable", message: `Plugin ${this.manifest.id}: ${message}` };
      await session.caller.to.failPlugin(failed).catch(ignore);
    }
  }

  /** Ends the thread as an operator or a test would: it is replaced. */
  async kill(): Promise<void> {
    await this.#thread?.terminate();
  }

  async close(): Promise<void> {
    this.#closed.abort();
    await this.#thread?.terminate();
    await this.#replacing;
  }

  /** Loads the plugin; throws what is wrong with it. A lazy one has no thread again until it is called. */
  async start(): Promise<void> {
    this.#resting = this.#parts.entry.lazy;
    await this.#load();
    if (this.#resting) await this.#thread?.terminate();
  }

  /** Starts the thread and loads the plugin. Replaced from then on when it dies. */
  async #load(): Promise<void> {
    const thread = new Thread<PluginWorkerService>({
      kind: "plugin",
      clock: this.#parts.clock,
      name: `Plugin worker ${this.#parts.index} (${this.#manifest?.id ?? this.#parts.entry.module})`,
      // A plugin gets nothing of the host's environment.
      env: {},
      execArgv: this.#parts.permissions.flags(this.#parts.entry.module, this.#parts.entry.permissions),
    });
    this.#thread = thread;
    const beat = new Int32Array(new SharedArrayBuffer(4));
    try {
      const { module, options, development } = this.#parts.entry;
      this.#manifest = await thread.caller.to.load({ module, options, development, beat });
    } catch (error) {
      await thread.terminate();
      throw error;
    }
    if (this.#resting) return;
    const loaded: LoadedThread = { thread, beat, pulse: undefined };
    this.#loaded = loaded;
    thread.exited.then(() => {
      loaded.pulse?.cancel();
      this.#loaded = undefined;
      if (!this.#closed.signal.aborted) this.#replacing = this.#replace();
    });
  }

  /**
   * A thread whose heartbeat stands still is blocked: it is stopped, and with it only the call it was at is lost. Looks
   * are counted, not time: when this thread was busy itself, the next look finds the beat gone on. It is watched from the
   * first lane on, which is when it begins to count.
   */
  #watchPulse(loaded: LoadedThread): void {
    const { thread, beat } = loaded;
    const looks = Math.max(2, Math.ceil(this.#parts.entry.blockedMs / LOOK_MS));
    let last = Atomics.load(beat, 0);
    let still = 0;
    const look = () => {
      const now = Atomics.load(beat, 0);
      still = now === last ? still + 1 : 0;
      last = now;
      if (still >= looks) void thread.terminate();
    };
    loaded.pulse ??= this.#parts.clock.interval(LOOK_MS, look).unref();
  }

  #replace(): Promise<void> {
    const pauseMs = () => this.#backoff.pauseAfterDeath(this.#parts.clock.now());
    return this.#bringUp(pauseMs, () => {
      this.restarts++;
    });
  }

  async #bringUp(pauseMs: () => number, onThere?: () => void): Promise<void> {
    const { clock } = this.#parts;
    const { signal } = this.#closed;
    try {
      await persist(() => this.#load(), { clock, attempts: MAX_FAILED_STARTS, pauseMs, signal });
    } catch (error) {
      return signal.aborted ? undefined : this.#giveUp(error);
    }
    onThere?.();
    // A thread that dies from here on has its own replacement under way.
    await this.#connectAll();
  }

  async #giveUp(error: unknown): Promise<void> {
    const message = `Plugin ${this.manifest.id} could not be restarted: ${asTroupeError(error, "plugin_failed").message}`;
    this.#failed = { plugin: this.#parts.index, code: "plugin_unavailable", message };
    await this.#connectAll();
  }
}

/**
 * How long to wait before a thread is replaced: hardly at all after one death, ever longer for one that keeps dying, so
 * that a crash loop costs its own plugin's calls their time and nobody else the processor.
 */
export class Backoff {
  #deaths: number[] = [];

  /** Counts a death at `now` (milliseconds of any clock) and gives the pause before the next attempt. */
  pauseAfterDeath(now: number): number {
    this.#deaths = this.#deaths.filter((at) => now - at < WINDOW_MS);
    this.#deaths.push(now);
    return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#deaths.length - 1));
  }
}
