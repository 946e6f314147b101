import { TroupeError } from "../kernel/index.js";
import type { ActivityNote, ObservedNote, PluginSetup, RelayCall } from "../session/index.js";
import type { ResolvedOptions } from "./options.js";
import { PluginWorker } from "./plugin-worker.js";
import { SessionWorker } from "./session-worker.js";
import { StoreWorker } from "./store-worker.js";

/** What session workers tell and ask the main thread. */
export interface CrewEvents {
  readonly onActivity: (note: ActivityNote) => void;
  readonly onObserved: (note: ObservedNote) => void;
  /** Answers what sessions ask of other sessions. */
  readonly relay: (call: RelayCall) => Promise<unknown>;
  /** A worker has a new thread, and can be asked for its sessions. */
  readonly onStarted: (worker: SessionWorker) => Promise<void>;
  /** Its store died: nothing can be asked any more. */
  readonly onStoreLost: (error: TroupeError) => void;
}

/** The threads of a runtime, and how they are wired to each other. */
export class Crew {
  readonly #options: ResolvedOptions;
  readonly #events: CrewEvents;
  readonly #sessionWorkers: SessionWorker[] = [];
  readonly #pluginWorkers = new Map<number, PluginWorker>();
  #store: StoreWorker | undefined;

  constructor(options: ResolvedOptions, events: CrewEvents) {
    this.#options = options;
    this.#events = events;
  }

  async start(): Promise<void> {
    this.#store = await StoreWorker.start(this.#options.store, this.#events.onStoreLost);
    this.#options.plugins.forEach((plugin, index) => {
      if (plugin.tier === "worker")
        this.#pluginWorkers.set(index, new PluginWorker(index, plugin, () => this.#sessionWorkers));
    });
    await all([...this.#pluginWorkers.values()].map((worker) => worker.start()));
    for (let index = 0; index < this.#options.sessionWorkers; index++) {
      this.#sessionWorkers.push(this.#newSessionWorker(index));
    }
    await all(this.#sessionWorkers.map((worker) => worker.start()));
  }

  get sessionWorkers(): readonly SessionWorker[] {
    return this.#sessionWorkers;
  }

  get store(): StoreWorker {
    if (this.#store === undefined) throw new TroupeError("closed", "The store is not open.");
    return this.#store;
  }

  worker(index: number): SessionWorker {
    const worker = this.#sessionWorkers[index];
    if (worker === undefined) throw new TroupeError("worker_unknown", `There is no session worker ${index}.`);
    return worker;
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
    let lane = 0;
    let control = this.#store?.messages ?? 0;
    for (const worker of this.#sessionWorkers) {
      lane += worker.messages.lane;
      control += worker.messages.control;
    }
    for (const worker of this.#pluginWorkers.values()) control += worker.messages;
    return { lane, control };
  }

  async close({ drainMs }: { readonly drainMs: number }): Promise<void> {
    await Promise.all(this.#sessionWorkers.map((worker) => worker.close({ drainMs })));
    await Promise.all([...this.#pluginWorkers.values()].map((worker) => worker.close()));
    await this.#store?.close();
  }

  #newSessionWorker(index: number): SessionWorker {
    const { onActivity, onObserved, relay, onStarted } = this.#events;
    return new SessionWorker({
      index,
      options: this.#options,
      plugins: () => this.#pluginSetups(),
      storePort: () => this.store.connect(),
      connectPlugins: async (worker) => {
        await Promise.all([...this.#pluginWorkers.values()].map((plugin) => plugin.connect(worker)));
        await onStarted(worker);
      },
      onObserved,
      onActivity,
      relay,
    });
  }

  #pluginSetups(): PluginSetup[] {
    return this.#options.plugins.map(({ tier, module, options, deadlineMs, optionalInChildren }, index) =>
      tier === "inline"
        ? { tier, module, options, deadlineMs, optionalInChildren }
        : {
            tier,
            manifest: (this.#pluginWorkers.get(index) as PluginWorker).manifest,
            deadlineMs,
            optionalInChildren,
          },
    );
  }
}

/** Waits for all of them also when one fails, so that nothing is still starting when the others are stopped. */
async function all(starting: readonly Promise<void>[]): Promise<void> {
  const settled = await Promise.allSettled(starting);
  for (const result of settled) if (result.status === "rejected") throw result.reason;
}
