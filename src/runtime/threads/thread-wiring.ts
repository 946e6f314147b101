import { availableParallelism } from "node:os";
import { deferred, ignore } from "../../async/index.js";
import { pluginUnknown, runtimeClosed, TroupeError } from "../../kernel/index.js";
import type { JobSpec, PluginManifest } from "../../plugin/index.js";
import type { PluginSetup } from "../../session/index.js";
import type { ThreadRights } from "../../wire/index.js";
import type { ResolvedOptions, ResolvedPlugin } from "../options/index.js";
import { MemoryAlarm, Watchdog } from "../watch/index.js";
import { AgentRegistry } from "./agent-registry.js";
import { holdInspectorSignal } from "./inspector-signal.js";
import { JobHost } from "./job-host.js";
import { bundlesOf, describeTogether, loadThread } from "./loaded-threads.js";
import { PluginHosts } from "./plugin-hosts.js";
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
  /** By number. */
  readonly #groups: PluginHosts[] = [];
  /** By the plugin's place in the options: its group, and its place there. */
  readonly #members = new Map<number, { readonly group: number; readonly member: number }>();
  /** Plugins that were put into groups of their own, which session workers that start meanwhile may not know. */
  readonly #splits: { readonly plugin: number; readonly group: number }[] = [];
  /** By the plugin's place in the options. */
  readonly #inlineJobs = new Map<number, JobHost>();
  readonly #usableSchemas = new Set<string>();
  readonly #watchdog: Watchdog;
  readonly agents: AgentRegistry;
  #giveBackSignal = ignore;
  /** What all groups have. */
  readonly #shared: Omit<ConstructorParameters<typeof PluginHosts>[0], "number" | "name" | "entries" | "onOffence">;
  #store: StoreWorker | undefined;
  /** Resolves when the store is open and every plugin is loaded. */
  readonly #prepared = deferred();
  #runtimeId: string | undefined;

  constructor(options: ResolvedOptions, events: CrewEvents) {
    this.#options = options;
    this.#events = events;
    const alarm = new MemoryAlarm({
      clock: options.clock,
      limitMb: options.memoryLimitMb,
      rss: () => process.memoryUsage.rss(),
      ask: () => {
        for (const group of this.#groups) group.lookAtMemory();
      },
      warn: (error, memory) => {
        process.emitWarning(error);
        events.hub?.emit({ type: "memory_high", ...memory });
      },
    });
    this.#watchdog = new Watchdog(options.clock, () => alarm.look());
    this.agents = new AgentRegistry(options, () => this.#everyone());
    this.#shared = {
      clock: options.clock,
      permissions: options.permissions,
      watchdog: this.#watchdog,
      cores: availableParallelism(),
      spares: { left: MOST_SPARES },
      sessionWorkers: () => this.#everyone(),
      events: events.hub,
    };
  }

  /**
   * Starts the first session worker, the store and the plugins at the same time, the thread first that has most to load:
   * it is configured once the others are there. The other session workers start while the first already serves.
   */
  async start(): Promise<void> {
    const { clock, store } = this.#options;
    this.#formGroups();
    if (this.#groups.length > 0) this.#giveBackSignal = holdInspectorSignal();
    const [first, ...others] = Array.from({ length: this.#options.sessionWorkers }, (_, index) =>
      this.#newSessionWorker(index),
    ) as [SessionWorker, ...SessionWorker[]];
    this.#sessionWorkers.push(first, ...others);
    const serving = first.start();
    const { onStoreProgress: onProgress, threadEnv: env } = this.#options;
    const opened = StoreWorker.start(store, { clock, env, onProgress, onLost: this.#events.onStoreLost }).then(
      (worker) => {
        this.#store = worker;
      },
    );
    const prepared = all([opened, this.#loadPlugins()]);
    prepared.then(this.#prepared.resolve, this.#prepared.reject);
    // It has no one to wait for it when no session worker's thread could be made.
    this.#prepared.promise.catch(ignore);
    await all([prepared, serving]);
    for (const worker of others) worker.startBehind();
  }

  #formGroups(): void {
    const { plugins } = this.#options;
    const entries: ResolvedPlugin[][] = [];
    const byName = new Map<string, number>();
    plugins.forEach((entry, index) => {
      if (entry.tier !== "worker") return;
      const group = (entry.group === undefined ? undefined : byName.get(entry.group)) ?? entries.length;
      const members = entries[group] ?? [];
      if (group === entries.length) entries.push(members);
      if (entry.group !== undefined) byName.set(entry.group, group);
      this.#members.set(index, { group, member: members.length });
      members.push(entry);
    });
    for (const members of entries) this.#newGroup(members, members[0]?.group);
  }

  #newGroup(
    entries: readonly ResolvedPlugin[],
    name: string | undefined,
    manifests: readonly PluginManifest[] = [],
  ): number {
    const number = this.#groups.length;
    const group = new PluginHosts({
      ...this.#shared,
      number,
      name,
      entries,
      manifests,
      onOffence: (member) => this.#split(number, member),
    });
    this.#groups.push(group);
    return number;
  }

  /**
   * A plugin that held the thread of its group until that was lost is in a group of its own from now on, with hosts of
   * its own: the others of its group are not hurt by it again.
   */
  #split(group: number, member: number): void {
    const index = [...this.#members].find(([, place]) => place.group === group && place.member === member)?.[0];
    const entry = index === undefined ? undefined : this.#options.plugins[index];
    const manifest = this.#groups[group]?.manifests[member];
    if (index === undefined || entry === undefined || manifest === undefined) return;
    const number = this.#newGroup([entry], undefined, [manifest]);
    this.#members.set(index, { group: number, member: 0 });
    this.#splits.push({ plugin: index, group: number });
    this.#events.hub?.emit({ type: "plugin_separated", plugin: manifest.id, group: entry.group ?? "" });
    for (const worker of this.#everyone()) void this.#tellSplits(worker);
  }

  async #tellSplits(worker: SessionWorker): Promise<void> {
    const to = worker.configured?.caller.to;
    for (const split of this.#splits) {
      const setup = this.#groups[split.group]?.setup;
      if (setup !== undefined) await to?.splitGroup({ ...split, setup }).catch(ignore);
    }
  }

  /** Lazy ones apart: their threads end again, so a few at a time are enough, and keep the memory of a few. */
  async #loadPlugins(): Promise<void> {
    const { clock } = this.#options;
    const cores = availableParallelism();
    const warm = this.#groups.filter(({ mayBeWarm }) => mayBeWarm).slice(0, MOST_WARM);
    const others = bundlesOf(
      this.#groups.filter((group) => !warm.includes(group)),
      STARTS_PER_CORE * cores,
    );
    await all([
      inTurn(
        warm.map((group) => () => group.start({ keepsThread: true })),
        STARTS_PER_CORE * cores,
      ),
      inTurn(
        others.map((groups) => () => describeTogether(groups, clock)),
        cores,
      ),
    ]);
  }

  get sessionWorkers(): readonly SessionWorker[] {
    return this.#sessionWorkers;
  }

  get store(): StoreWorker {
    if (this.#store === undefined) throw runtimeClosed();
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
    throw unknownWorker(place, this.sessionWorkers.length);
  }

  /**
   * Puts a new worker, once it is there, in the place of another one, which is told its sessions' new place for it at
   * once and keeps them until they are brought away.
   */
  async replace(index: number, onLeft: (old: SessionWorker) => void): Promise<SessionWorker> {
    const old = this.#sessionWorkers[index];
    if (old === undefined) throw unknownWorker(index, this.sessionWorkers.length);
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
    const thread = `Session worker ${index}`;
    this.#events.hub?.emit({ type: "worker_recycled", thread, recycled: fresh.recycled });
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

  #isolatedIds(): string[] {
    return this.#groups.flatMap((hosts) => hosts?.manifests.map(({ id }) => id) ?? []);
  }

  isolated(pluginId: string): PluginHosts {
    for (const { group, member } of this.#members.values()) {
      const hosts = this.#groups[group];
      if (hosts?.manifests[member]?.id === pluginId) return hosts;
    }
    throw pluginUnknown(`isolated plugin ${pluginId}`, this.#isolatedIds());
  }

  /** Where the jobs of a plugin run, and what a pool thread needs to run one. */
  jobsOf(pluginId: string): JobPlace {
    const index = this.plugins().findIndex(({ id }) => id === pluginId);
    const entry = this.#options.plugins[index];
    if (entry === undefined)
      throw pluginUnknown(
        `plugin ${pluginId}`,
        this.plugins().map(({ id }) => id),
      );
    const place = this.#members.get(index);
    if (place === undefined) {
      const rights = { execArgv: [], env: { ...process.env } as ThreadRights["env"], denials: undefined };
      const host = this.#inlineJobs.get(index) ?? this.#inlineHost(pluginId, entry, rights);
      this.#inlineJobs.set(index, host);
      return { host: () => host, member: 0, entry, rights, jobs: this.worker(0).inlineJobs.get(pluginId) ?? [] };
    }
    const hosts = this.#groups[place.group] as PluginHosts;
    const { jobs = [] } = hosts.manifests[place.member] ?? {};
    return { host: () => hosts.jobs, member: place.member, entry, rights: hosts.rights(), jobs };
  }

  /** A plugin whose hooks run in the session workers has a thread for its jobs, which may do what those may. */
  #inlineHost(pluginId: string, entry: ResolvedPlugin, rights: ThreadRights): JobHost {
    const { clock } = this.#options;
    return new JobHost({
      clock,
      watchdog: this.#watchdog,
      name: `The jobs of ${pluginId}`,
      blockedMs: entry.blockedMs,
      load: () => loadThread({ clock, name: `Jobs (${pluginId})`, entries: [entry], rights }),
    });
  }

  /** What the entry of a plugin lets it do, by the id its module says. */
  permissionsOf(pluginId: string): ResolvedPlugin["permissions"] {
    const index = this.plugins().findIndex(({ id }) => id === pluginId);
    return this.#options.plugins[index]?.permissions ?? {};
  }

  /** The plugins in the order of the options. */
  plugins(): PluginThreads[] {
    const inline = [...this.worker(0).inlinePlugins];
    return this.#options.plugins.map(({ tier }, index) => {
      const place = this.#members.get(index);
      if (place === undefined)
        return { id: inline.shift() ?? `plugins[${index}]`, tier, threadId: -1, restarts: 0, threads: 0 };
      const { manifests, threadId, restarts, threads } = this.#groups[place.group] as PluginHosts;
      return { id: manifests[place.member]?.id ?? "", tier, threadId, restarts, threads };
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
    for (const group of this.#groups) control += group.messages;
    return { lane, control };
  }

  async close({ drainMs }: { readonly drainMs: number }): Promise<void> {
    await Promise.all(this.#everyone().map((worker) => worker.close({ drainMs })));
    await Promise.all([...this.#groups, ...this.#inlineJobs.values()].map((threads) => threads.close()));
    this.#giveBackSignal();
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
      watchdog: this.#watchdog,
      groups: () => this.#groups.map(({ setup }) => setup),
      runtimeId: () => {
        this.#runtimeId ??= this.#options.clock.uuid();
        return this.#runtimeId;
      },
      onHostWanted: (wanted, worker) => this.#groups[wanted.group]?.want(wanted, worker),
      onHostDown: (note, worker) => this.#groups[note.group]?.down(note, worker),
      agents: () => this.agents.setup,
      onConfigured: async (worker) => {
        await this.agents.tell(worker);
        await this.#tellSplits(worker);
        await Promise.all(this.#groups.map((group) => group.retell(worker)));
      },
      storePort: async (replaces) => {
        await this.#prepared.promise;
        return this.store.connect(replaces);
      },
    });
  }

  #pluginSetups(): PluginSetup[] {
    return this.#options.plugins.map(
      ({ tier, module, options, loadMs, deadlineMs, optionalInChildren, onFailure, optional, isProtocol }, index) => {
        const rules = { deadlineMs, optionalInChildren, onFailure, optional, ...(isProtocol && { isProtocol }) };
        if (tier === "inline") return { tier, module, options, loadMs, ...rules };
        const place = this.#members.get(index) as { readonly group: number; readonly member: number };
        const manifest = this.#groups[place.group]?.manifests[place.member] as PluginManifest;
        return { tier, manifest, ...rules, ...place };
      },
    );
  }
}

/** Where the jobs of a plugin run. */
export interface JobPlace {
  /** Throws when the plugin was given up. */
  readonly host: () => JobHost;
  /** The plugin's place among those of the host's thread. */
  readonly member: number;
  readonly entry: ResolvedPlugin;
  readonly rights: ThreadRights;
  readonly jobs: readonly JobSpec[];
}

/** A plugin, and the threads that run it. */
interface PluginThreads {
  readonly id: string;
  readonly tier: "worker" | "inline";
  readonly threadId: number;
  readonly restarts: number;
  readonly threads: number;
}

const NOWHERE = -1;
/** Loaded threads that wait to take over, over all groups. */
const MOST_SPARES = 4;
/** A thread that starts also waits: for its files, and for the main thread. */
const STARTS_PER_CORE = 4;
/** Groups that keep the thread they were loaded on, until it shows that nobody calls them: the first turn waits for none. */
const MOST_WARM = 16;

export function unknownWorker(index: number, count: number): TroupeError {
  const others = count === 1 ? "There is one, 0." : `There are ${count}, from 0 to ${count - 1}.`;
  return new TroupeError("worker_unknown", `There is no session worker ${index}. ${others}`);
}

/**
 * Starts threads in order, so many at a time, and no more once one has failed. Two hundred threads that start at once take a
 * tenth more processor time than eight at a time, and the first of them is there after all others.
 */
async function inTurn(starts: readonly (() => Promise<void>)[], atOnce: number): Promise<void> {
  const results: Promise<void>[] = [];
  let failed = false;
  const line = async () => {
    while (results.length < starts.length && !failed) {
      const started = (starts[results.length] as () => Promise<void>)();
      results.push(started);
      await started.catch(() => {
        failed = true;
      });
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, starts.length) }, line));
  await all(results);
}

/** Waits for all of them also when one fails, so that nothing is still starting when the others are stopped. */
async function all(starting: readonly Promise<void>[]): Promise<void> {
  const settled = await Promise.allSettled(starting);
  for (const result of settled) if (result.status === "rejected") throw result.reason;
}
