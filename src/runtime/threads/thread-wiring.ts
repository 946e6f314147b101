import { availableParallelism } from "node:os";
import { TroupeError } from "../../kernel/index.js";
import type { PluginSetup } from "../../session/index.js";
import { type ResolvedOptions, ThreadPermissions } from "../options/index.js";
import { PluginWorker } from "./plugin-worker.js";
import { type CrewEvents, SessionWorker } from "./session-worker.js";
import { StoreWorker } from "./store-worker.js";

/** The threads of a runtime, and how they are wired to each other. */
export class Crew {
  readonly #options: ResolvedOptions;
  readonly #events: CrewEvents;
  /** By their places. */
  readonly #sessionWorkers: SessionWorker[] = [];
  /** The one that is about to take a place, and the one that has left it and finishes its turns. */
  #starting: SessionWorker | undefined;
  #retiring: SessionWorker | undefined;
  /** What workers that are no more had received. */
  readonly #past = { lane: 0, control: 0 };
  readonly #pluginWorkers = new Map<number, PluginWorker>();
  readonly #usableSchemas = new Set<string>();
  #store: StoreWorker | undefined;
  /** Resolves when the store is open and every plugin is loaded. */
  #prepared: Promise<void> = Promise.resolve();

  constructor(options: ResolvedOptions, events: CrewEvents) {
    this.#options = options;
    this.#events = events;
  }

  /**
   * Starts the store, the plugins and the first session worker at the same time: its thread loads while theirs do, and is
   * configured once they are there. The other session workers start while the first already serves.
   */
  async start(): Promise<void> {
    const { clock, store } = this.#options;
    const sessionWorkers = () => this.#everyone();
    const permissions = new ThreadPermissions();
    this.#options.plugins.forEach((entry, index) => {
      if (entry.tier === "worker")
        this.#pluginWorkers.set(index, new PluginWorker({ index, entry, clock, permissions, sessionWorkers }));
    });
    const { onStoreProgress: onProgress } = this.#options;
    const opened = StoreWorker.start(store, { clock, onProgress, onLost: this.#events.onStoreLost }).then((worker) => {
      this.#store = worker;
    });
    this.#prepared = all([opened, this.#loadPlugins()]);
    const [first, ...others] = Array.from({ length: this.#options.sessionWorkers }, (_, index) =>
      this.#newSessionWorker(index),
    ) as [SessionWorker, ...SessionWorker[]];
    this.#sessionWorkers.push(first, ...others);
    await all([this.#prepared, first.start()]);
    for (const worker of others) worker.startBehind();
  }

  /** Lazy ones apart: their threads end again, so a few at a time are enough, and keep the memory of a few. */
  async #loadPlugins(): Promise<void> {
    const workers = [...this.#pluginWorkers.values()];
    const cores = availableParallelism();
    await all([
      startInTurn(
        workers.filter((worker) => !worker.lazy),
        STARTS_PER_CORE * cores,
      ),
      startInTurn(
        workers.filter((worker) => worker.lazy),
        cores,
      ),
    ]);
  }

  get sessionWorkers(): readonly SessionWorker[] {
    return this.#sessionWorkers;
  }

  get store(): StoreWorker {
    if (this.#store === undefined) throw new TroupeError("closed", "The store is not open.");
    return this.#store;
  }

  get retiring(): SessionWorker | undefined {
    return this.#retiring;
  }

  /** The worker at a place; also one that has left its own. */
  worker(place: number): SessionWorker {
    const worker = this.#sessionWorkers[place];
    if (worker !== undefined) return worker;
    if (this.#retiring?.place === place) return this.#retiring;
    throw unknownWorker(place);
  }

  /**
   * Puts a new worker, once it is there, in the place of another one, which is told its sessions' new place for it at
   * once and keeps them until they are brought away.
   */
  async replace(index: number, onLeft: (old: SessionWorker) => void): Promise<SessionWorker> {
    const old = this.#sessionWorkers[index];
    if (old === undefined) throw unknownWorker(index);
    const fresh = this.#newSessionWorker(index);
    fresh.place = NOWHERE;
    this.#starting = fresh;
    try {
      await fresh.start();
    } finally {
      this.#starting = undefined;
    }
    old.place = this.#sessionWorkers.length;
    fresh.place = index;
    fresh.restarts = old.restarts;
    fresh.recycled = old.recycled + 1;
    this.#sessionWorkers[index] = fresh;
    this.#retiring = old;
    onLeft(old);
    return old;
  }

  /** Ends the worker that has left its place. */
  async endRetired({ drainMs }: { readonly drainMs: number }): Promise<void> {
    const old = this.#retiring;
    await old?.close({ drainMs });
    this.#past.lane += old?.messages.lane ?? 0;
    this.#past.control += old?.messages.control ?? 0;
    this.#retiring = undefined;
  }

  isolated(pluginId: string): PluginWorker {
    for (const worker of this.#pluginWorkers.values()) if (worker.manifest.id === pluginId) return worker;
    throw new TroupeError("plugin_unknown", `There is no isolated plugin ${pluginId}.`);
  }

  /** The plugins in the order of the options. */
  plugins(): { id: string; tier: "worker" | "inline"; threadId: number; restarts: number }[] {
    const inline = [...this.worker(0).inlinePlugins];
    return this.#options.plugins.map(({ tier }, index) => {
      const worker = this.#pluginWorkers.get(index);
      if (worker === undefined) return { id: inline.shift() ?? `plugins[${index}]`, tier, threadId: -1, restarts: 0 };
      return { id: worker.manifest.id, tier, threadId: worker.threadId, restarts: worker.restarts };
    });
  }

  /** Messages the main thread received: on the lanes, and by Comlink. */
  messages(): { lane: number; control: number } {
    let lane = this.#past.lane;
    let control = this.#past.control + (this.#store?.messages ?? 0);
    for (const worker of this.#everyone()) {
      lane += worker.messages.lane;
      control += worker.messages.control;
    }
    for (const worker of this.#pluginWorkers.values()) control += worker.messages;
    return { lane, control };
  }

  async close({ drainMs }: { readonly drainMs: number }): Promise<void> {
    await Promise.all(this.#everyone().map((worker) => worker.close({ drainMs })));
    await Promise.all([...this.#pluginWorkers.values()].map((worker) => worker.close()));
    await this.#store?.close();
  }

  #everyone(): SessionWorker[] {
    return [...this.#sessionWorkers, this.#starting, this.#retiring].filter((worker) => worker !== undefined);
  }

  #newSessionWorker(index: number): SessionWorker {
    return new SessionWorker({
      index,
      options: this.#options,
      events: this.#events,
      plugins: () => this.#pluginSetups(),
      usableSchemas: this.#usableSchemas,
      onPluginCalled: (plugin, worker) => this.#pluginWorkers.get(plugin)?.call(worker),
      storePort: async (replaces) => {
        await this.#prepared;
        return this.store.connect(replaces);
      },
    });
  }

  #pluginSetups(): PluginSetup[] {
    return this.#options.plugins.map(({ tier, module, options, deadlineMs, optionalInChildren }, index) => {
      if (tier === "inline") return { tier, module, options, deadlineMs, optionalInChildren };
      const { manifest } = this.#pluginWorkers.get(index) as PluginWorker;
      return { tier, manifest, deadlineMs, optionalInChildren };
    });
  }
}

const NOWHERE = -1;
/** A thread that starts also waits: for its files, and for the main thread. */
const STARTS_PER_CORE = 4;

export function unknownWorker(index: number): TroupeError {
  return new TroupeError("worker_unknown", `There is no session worker ${index}.`);
}

/**
 * Starts them in order, so many at a time, and no more once one has failed. Two hundred threads that start at once take a
 * tenth more processor time than eight at a time, and the first of them is there after all others.
 */
async function startInTurn(workers: readonly PluginWorker[], atOnce: number): Promise<void> {
  const results: Promise<void>[] = [];
  let failed = false;
  const line = async () => {
    while (results.length < workers.length && !failed) {
      const started = (workers[results.length] as PluginWorker).start();
      results.push(started);
      await started.catch(() => {
        failed = true;
      });
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, workers.length) }, line));
  await all(results);
}

/** Waits for all of them also when one fails, so that nothing is still starting when the others are stopped. */
async function all(starting: readonly Promise<void>[]): Promise<void> {
  const settled = await Promise.allSettled(starting);
  for (const result of settled) if (result.status === "rejected") throw result.reason;
}
