import { MessageChannel } from "node:worker_threads";
import { type Clock, persist, type Timer } from "../../async/index.js";
import { asTroupeError, TroupeError } from "../../kernel/index.js";
import type { PluginManifest } from "../../plugin/index.js";
import type { PluginWorkerService } from "../../session/index.js";
import { permissionFlags, type ResolvedPlugin } from "../options/index.js";
import type { SessionWorker } from "./session-worker.js";
import { Thread } from "./threads.js";

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
  readonly sessionWorkers: () => readonly SessionWorker[];
}

/**
 * One plugin's thread, kept alive: when it dies it is replaced and every session worker gets a lane to the new one.
 * Sessions restore their instances from the last captured state when they next call it.
 */
export class PluginWorker {
  readonly #parts: PluginWorkerParts;
  #thread: Thread<PluginWorkerService> | undefined;
  /** The thread once its plugin is loaded, until it dies. */
  #loaded: Thread<PluginWorkerService> | undefined;
  /** Which plugin thread each session worker's thread has a lane to. */
  readonly #connected = new WeakMap<object, object>();
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

  get threadId(): number {
    return this.#thread?.threadId ?? -1;
  }

  get messages(): number {
    return this.#thread?.messages ?? 0;
  }

  /**
   * Opens the hook lane between this plugin and a session worker: a port of their own, past the main thread. Called by
   * whichever of the two came up last. When one of them dies meanwhile, its successor calls again.
   */
  async connect(worker: SessionWorker): Promise<void> {
    const plugin = this.#loaded;
    const session = worker.configured;
    if (this.#failed !== undefined) return session?.caller.to.failPlugin(this.#failed);
    if (plugin === undefined || session === undefined || this.#connected.get(session) === plugin) return;
    this.#connected.set(session, plugin);
    const { port1, port2 } = new MessageChannel();
    const { port1: host1, port2: host2 } = new MessageChannel();
    const stage = new Int32Array(new SharedArrayBuffer(4));
    const lane = { plugin: this.#parts.index, port: port2, hostPort: host2, stage };
    const attached = await Promise.allSettled([
      plugin.caller.to.attach(
        { port: port1, hostPort: host1, name: session.name, stage },
        { transfer: [port1, host1] },
      ),
      session.caller.to.attachPlugin(lane, { transfer: [port2, host2] }),
    ]);
    for (const result of attached) {
      if (result.status === "rejected" && asTroupeError(result.reason, "attach_failed").code !== "worker_lost")
        throw result.reason;
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

  /** A session has called the plugin and waits for it. */
  wake(): void {
    if (!this.#resting || this.#closed.signal.aborted) return;
    this.#resting = false;
    this.#replacing = this.#bringUp(() => 0);
  }

  /** Starts the thread and loads the plugin. Replaced from then on when it dies. */
  async #load(): Promise<void> {
    const thread = new Thread<PluginWorkerService>({
      kind: "plugin",
      clock: this.#parts.clock,
      name: `Plugin worker ${this.#parts.index} (${this.#manifest?.id ?? this.#parts.entry.module})`,
      // A plugin gets nothing of the host's environment.
      env: {},
      execArgv: permissionFlags(this.#parts.entry.module, this.#parts.entry.permissions),
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
    this.#loaded = thread;
    const pulse = this.#watchPulse(thread, beat);
    thread.exited.then(() => {
      pulse.cancel();
      this.#loaded = undefined;
      if (!this.#closed.signal.aborted) this.#replacing = this.#replace();
    });
  }

  /**
   * A thread whose heartbeat stands still is blocked: it is stopped, and with it only the call it was at is lost. Looks
   * are counted, not time: when this thread was busy itself, the next look finds the beat gone on.
   */
  #watchPulse(thread: Thread<PluginWorkerService>, beat: Int32Array): Timer {
    const looks = Math.max(2, Math.ceil(this.#parts.entry.blockedMs / LOOK_MS));
    let last = Atomics.load(beat, 0);
    let still = 0;
    const look = () => {
      const now = Atomics.load(beat, 0);
      still = now === last ? still + 1 : 0;
      last = now;
      if (still >= looks) void thread.terminate();
    };
    return this.#parts.clock.interval(LOOK_MS, look).unref();
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
    await Promise.allSettled(this.#parts.sessionWorkers().map((worker) => this.connect(worker)));
  }

  async #giveUp(error: unknown): Promise<void> {
    const message = `Plugin ${this.manifest.id} could not be restarted: ${asTroupeError(error, "plugin_failed").message}`;
    this.#failed = { plugin: this.#parts.index, code: "plugin_unavailable", message };
    await Promise.allSettled(this.#parts.sessionWorkers().map((worker) => this.connect(worker)));
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
