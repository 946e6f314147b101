import { type Clock, ignore } from "../../async/index.js";
import { asTroupeError, pluginUnavailable, type TroupeError } from "../../kernel/index.js";
import type { PluginManifest } from "../../plugin/index.js";
import { type GroupSetup, type HostDownNote, QUARANTINE, type WantedNote } from "../../session/index.js";
import { type EventSink, eventError } from "../../trace/index.js";
import { endedBy, endedByCall, memberOf, type ThreadRights } from "../../wire/index.js";
import type { ResolvedPlugin, ThreadPermissions } from "../options/index.js";
import type { Watchdog } from "../watch/index.js";
import { JobHost } from "./job-host.js";
import { type LoadedThread, loadThread, rightsOf, SpareThread } from "./loaded-threads.js";
import { hostLost, idsOf, tellDeath } from "./plugin-events.js";
import { type Death, PluginHost } from "./plugin-host.js";
import type { SessionWorker } from "./session-worker.js";
import { ShardLoad } from "./shard-load.js";
import { NO_DEADLINE_MS } from "./threads.js";

/** Deaths that are nobody's fault but the plugin's, within {@link WINDOW_MS}, that are mended; one more and it is given up. */
const MOST_DEATHS = 3;
const WINDOW_MS = 5_000;
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 2_000;
/** So many sessions must fail a plugin, and more than do not, before it is given up for them all. */
const MANY_OFFENDERS = 8;
/** A plugin that nobody has called after this time has no thread; of many plugins most have none from the start. */
const WARM_MS = 10_000;
/**
 * Behind a spare that took over, the next is loaded so much later: its session is on trial in quarantine by then, and two
 * threads that start at once take both of two cores from everybody else.
 */
const SPARE_AFTER_MS = 1_000;
const SHARD = "shard ";
const FIRST_SHARD = `${SHARD}0`;

interface GroupParts {
  readonly number: number;
  readonly name: string | undefined;
  readonly entries: readonly ResolvedPlugin[];
  readonly clock: Clock;
  readonly permissions: ThreadPermissions;
  readonly watchdog: Watchdog;
  readonly cores: number;
  /** Spare threads that may still be made; shared by all groups. */
  readonly spares: { left: number };
  readonly sessionWorkers: () => readonly SessionWorker[];
  /** A plugin, by its place, held a thread that the others of the group share and that is gone. */
  readonly onOffence: (member: number) => void;
  /** Undefined: nobody listens. */
  readonly events: EventSink | undefined;
  /** What is known of the plugins, when they were loaded before. */
  readonly manifests?: readonly PluginManifest[];
}

/** One group of plugins on the main thread: its hosts, and what becomes of it when they die. */
export class PluginHosts {
  readonly #parts: GroupParts;
  readonly #hosts = new Map<string, PluginHost>();
  #manifests: readonly PluginManifest[] = [];
  #shards = 1;
  readonly #shardLoad = new ShardLoad();
  /** Shards that are no more, while the session workers are asked whether they still use them. */
  readonly #retiring = new Set<string>();
  /** Deaths that no session's call explains, by the lanes the thread had. */
  #deaths: { readonly at: number; readonly lanes: readonly number[] }[] = [];
  readonly #offenders = new Map<SessionWorker, Pick<HostDownNote, "offenders" | "innocent">>();
  #lingering = 0;
  /** Threads that took the place of one that died, also of hosts that nobody needs any more. */
  restarts = 0;
  readonly #spare: SpareThread;
  #jobs: JobHost | undefined;
  /** A thread of it has died, and not because somebody asked for it. */
  #hasLost = false;
  #failed: TroupeError | undefined;
  #closed = false;

  constructor(parts: GroupParts) {
    this.#parts = parts;
    this.#manifests = parts.manifests ?? [];
    this.#spare = new SpareThread(parts, () => this.#load());
  }

  get manifests(): readonly PluginManifest[] {
    return this.#manifests;
  }

  get entries(): readonly ResolvedPlugin[] {
    return this.#parts.entries;
  }

  /** May it keep the thread it is loaded on until somebody calls it? */
  get mayBeWarm(): boolean {
    return this.#isolation !== "session" && !this.#parts.entries.every(({ lazy }) => lazy);
  }

  /** Of its first host; -1 while that has no thread. */
  get threadId(): number {
    return this.#hosts.get(FIRST_SHARD)?.current?.thread.threadId ?? -1;
  }

  /** How many threads it has now. */
  get threads(): number {
    return [...this.#hosts.values()].filter(({ current }) => current !== undefined).length;
  }

  get messages(): number {
    const threads = [...this.#hosts.values()].map(({ current }) => current?.thread);
    return [...threads, this.#jobs?.thread].reduce((sum, thread) => sum + (thread?.messages ?? 0), 0);
  }

  get setup(): GroupSetup {
    return { name: this.#name, shards: this.#shards, isolation: this.#isolation };
  }

  get failure(): TroupeError | undefined {
    return this.#failed;
  }

  get #ids(): string {
    return idsOf(this.#manifests);
  }

  get #isolation(): GroupSetup["isolation"] {
    return this.#parts.entries.some(({ isolation }) => isolation === "session") ? "session" : "shared";
  }

  get #name(): string {
    return this.#parts.name === undefined
      ? `Plugin ${this.#manifests[0]?.id ?? this.#parts.entries[0]?.module}`
      : `The plugin group ${this.#parts.name}`;
  }

  /** Loads the plugins; throws what is wrong with them. A group nobody calls has no thread again after a while. */
  async start({ keepsThread }: { readonly keepsThread: boolean }): Promise<void> {
    const loaded = await this.#load();
    if (!keepsThread) {
      await loaded.thread.terminate();
      return;
    }
    const host = this.#host(FIRST_SHARD, undefined);
    host.adopt(loaded);
    this.#parts.clock
      .timeout(WARM_MS, () => {
        if (!host.isCalled) void host.retire();
      })
      .unref();
  }

  /** Where its jobs run. */
  get jobs(): JobHost {
    if (this.#failed !== undefined) throw this.#failed;
    const { clock, watchdog, entries } = this.#parts;
    this.#jobs ??= new JobHost({
      clock,
      watchdog,
      name: `The jobs of ${this.#ids}`,
      blockedMs: Math.max(...entries.map(({ blockedMs }) => blockedMs)),
      load: () => this.#load({ what: "Jobs" }),
    });
    return this.#jobs;
  }

  /** Its plugins were loaded on another thread, which told what they are. */
  described(manifests: readonly PluginManifest[]): void {
    this.#manifests = manifests;
  }

  /** What its threads may do. */
  rights(): ThreadRights {
    const { permissions, entries, name } = this.#parts;
    return rightsOf(permissions, entries, name);
  }

  /** A session of this worker has called a host and waits for a lane. */
  want({ key, lane }: WantedNote, worker: SessionWorker): void {
    if (this.#closed) return;
    const host = this.#host(key, worker);
    host.call(worker, lane);
    if (this.#failed !== undefined) void host.refuse(this.#failed);
  }

  /** A session worker has lost a lane, or hears nothing on it. */
  down(note: HostDownNote, worker: SessionWorker): void {
    const host = this.#hosts.get(placeOf(note.key, worker));
    if (note.released === true) {
      this.#hosts.delete(placeOf(note.key, worker));
      void host?.close();
      return;
    }
    // The thread may live: a plugin that closes its port, or sends what no lane sends, does not go on.
    if (host?.hasLane(note.lane)) void host.end("itself");
    this.#offenders.set(worker, note);
    if (note.offenders > 0) this.#deaths = this.#deaths.filter(({ lanes }) => !lanes.includes(note.lane));
    let [offenders, innocent] = [0, 0];
    for (const each of this.#offenders.values()) {
      offenders += each.offenders;
      innocent += each.innocent;
    }
    if (offenders >= MANY_OFFENDERS && innocent < offenders)
      this.#giveUp(new Error(`${offenders} sessions ended or blocked its threads, and only ${innocent} did not`));
  }

  /** Has each of its threads look at what it holds: one that holds too much ends. */
  lookAtMemory(): void {
    for (const { current } of this.#hosts.values()) {
      const thread = current?.thread;
      thread?.uncounted(thread.caller.to.ping(undefined, { deadlineMs: NO_DEADLINE_MS })).catch(ignore);
    }
  }

  /** Ends its threads, or one of them, as an operator or a test would: they are replaced, and it counts for nothing. */
  async kill(one?: number): Promise<void> {
    const running = [...this.#hosts.values()].filter(({ current }) => current !== undefined);
    const chosen = one === undefined ? running : running.filter((_, n) => n === one % running.length);
    const ended = chosen.map((host) => host.end("asked"));
    await Promise.all(one === undefined ? [...ended, this.#jobs?.end("asked")] : ended);
  }

  /** Brings back plugins that were given up, with nothing held against them. */
  async restart(): Promise<void> {
    const failed = this.#failed !== undefined;
    this.#failed = undefined;
    this.#deaths = [];
    this.#offenders.clear();
    if (failed) await this.#tell((to) => to.failGroup({ group: this.#parts.number, failure: null }));
    else await this.kill();
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([
      this.#spare.close(),
      this.#jobs?.close(),
      ...[...this.#hosts.values()].map((host) => host.close()),
    ]);
  }

  /** A session worker that starts is told what the others know. */
  async retell(worker: SessionWorker): Promise<void> {
    if (this.#failed === undefined) return;
    const { code, message } = this.#failed;
    const failure = { group: this.#parts.number, failure: { code, message } };
    await worker.configured?.caller.to.failGroup(failure).catch(ignore);
  }

  #host(key: string, worker: SessionWorker | undefined): PluginHost {
    const place = placeOf(key, worker);
    const known = this.#hosts.get(place);
    if (known !== undefined) return known;
    const { number: group, clock, watchdog, sessionWorkers, entries } = this.#parts;
    const host = new PluginHost({
      group,
      key,
      clock,
      watchdog,
      sessionWorkers,
      blockedMs: Math.max(...entries.map(({ blockedMs }) => blockedMs)),
      // Who is on trial there is often refused afterwards.
      onDemand: key === QUARANTINE,
      takeThread: () => this.#takeThread(key),
      onDeath: (death) => this.#died(death),
      onFailedStart: (error) => this.#counted({ at: clock.now(), lanes: [] }, error),
      onShare: (share) => this.#weigh(key, share),
      onHeld: () => {
        // Sessions in quarantine wait for its next thread, and nobody else makes way for it.
        if (key !== QUARANTINE) this.#spare.make();
      },
      onRestarted: (thread) => {
        const restarts = ++this.restarts;
        this.#parts.events?.emit({ type: "plugin_restarted", plugin: this.#ids, thread, restarts });
      },
      onLane: (to, lane, thread) =>
        this.#parts.events?.emit({ type: "lane_opened", plugin: this.#ids, thread, to, lane }),
    });
    this.#hosts.set(place, host);
    return host;
  }

  #died(death: Death): number | "given up" {
    const { key, stage, lanes, lingering } = death;
    const { events } = this.#parts;
    tellDeath(events, this.#manifests, death);
    events?.emit({ type: "lane_lost", plugin: this.#ids, thread: death.thread, lanes });
    this.#shardLoad.forget(key);
    if (lingering !== undefined) {
      this.#threadsLinger(1);
      void lingering.then(() => this.#threadsLinger(-1));
    }
    if (endedBy(stage) === "asked") return this.#failed === undefined ? 0 : "given up";
    this.#hasLost = true;
    // Otherwise the call that held it says so.
    const byCall = endedByCall(stage);
    if (!byCall) process.emitWarning(hostLost(this.#name, this.#manifests, death));
    if (byCall && this.#parts.entries.length > 1) this.#parts.onOffence(memberOf(stage));
    // A call that held the thread is its session's fault, and what runs in quarantine is on trial anyway.
    if (byCall || !key.startsWith(SHARD)) return this.#failed === undefined ? 0 : "given up";
    return this.#counted(
      { at: this.#parts.clock.now(), lanes },
      new Error("its thread ended by itself again and again"),
    );
  }

  #threadsLinger(change: number): void {
    this.#lingering += change;
    const { number: group } = this.#parts;
    void this.#tell((to) => to.lingeringThreads({ group, count: this.#lingering }));
  }

  #counted(death: { readonly at: number; readonly lanes: readonly number[] }, error: unknown): number | "given up" {
    if (this.#failed !== undefined) return "given up";
    this.#deaths = this.#deaths.filter(({ at }) => death.at - at < WINDOW_MS);
    this.#deaths.push(death);
    if (this.#deaths.length > MOST_DEATHS) {
      this.#giveUp(error);
      return "given up";
    }
    return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#deaths.length - 1));
  }

  #giveUp(error: unknown): void {
    if (this.#failed !== undefined || this.#closed) return;
    const why = asTroupeError(error, "plugin_failed").message;
    const message = `${this.#name} was given up: ${why}. Mend it, then troupe.restartPlugin("${this.#manifests[0]?.id}") or start the runtime again.`;
    this.#failed = pluginUnavailable(message);
    const { code } = this.#failed;
    this.#parts.events?.emit({ type: "plugin_given_up", plugin: this.#ids, error: eventError(this.#failed) });
    void this.#tell((to) => to.failGroup({ group: this.#parts.number, failure: { code, message } }));
    void this.kill();
  }

  /** Session workers that start are told by {@link retell} and by their setup. */
  #tell(say: (to: SessionCaller) => Promise<unknown>): Promise<PromiseSettledResult<unknown>[]> {
    const told = this.#parts.sessionWorkers().map(({ configured }) => configured && say(configured.caller.to));
    return Promise.allSettled(told);
  }

  /** More shards for a group whose hosts have too much to do, and one again when all of them have little. */
  #weigh(key: string, share: number): void {
    if (!key.startsWith(SHARD)) return;
    if (this.#isSurplus(key)) return void this.#retire(key);
    const most = Math.min(this.#parts.cores, ...this.#parts.entries.map(({ shards }) => shards));
    const wanted = this.#shardLoad.weigh(key, share, { now: this.#shards, most });
    if (wanted !== this.#shards) this.#spread(wanted);
  }

  #spread(shards: number): void {
    this.#shards = shards;
    this.#shardLoad.spread((key) => this.#isSurplus(key));
    void this.#tell((to) => to.spreadGroup({ group: this.#parts.number, shards }));
  }

  #isSurplus(key: string): boolean {
    return Number(key.slice(SHARD.length)) >= this.#shards;
  }

  /** Ends the thread of a shard that is no more, once no session worker uses it. Asked for again with each look. */
  async #retire(key: string): Promise<void> {
    if (this.#retiring.has(key)) return;
    this.#retiring.add(key);
    const shards = this.#shards;
    const used = await this.#tell((to) => to.spreadGroup({ group: this.#parts.number, shards }));
    this.#retiring.delete(key);
    const isFree = used.every((answer) => answer.status === "fulfilled" && answer.value !== true);
    if (isFree && this.#isSurplus(key)) await this.#hosts.get(key)?.retire();
  }

  async #takeThread(key: string): Promise<LoadedThread> {
    if (key === QUARANTINE) return this.#load({ background: true });
    const spare = await this.#spare.take();
    const loaded = spare ?? (await this.#load());
    // What died once may die again.
    if (this.#hasLost) this.#spare.make(spare === undefined ? 0 : SPARE_AFTER_MS);
    return loaded;
  }

  /** Starts a thread and loads the plugins there. */
  async #load({ background = false, what: kind = "Plugin host" } = {}): Promise<LoadedThread> {
    const { clock, entries, number } = this.#parts;
    const what = this.#parts.name ?? this.#manifests[0]?.id ?? entries[0]?.module;
    const name = `${kind} ${number} (${what})`;
    const { manifests, ...loaded } = await loadThread({ clock, name, entries, rights: this.rights(), background });
    this.#manifests = manifests;
    return loaded;
  }
}

/** Hosts are known by their keys, and each session worker's quarantine is its own. */
function placeOf(key: string, worker: SessionWorker | undefined): string {
  return key === QUARANTINE ? `${key} of worker ${worker?.index}` : key;
}

type SessionCaller = NonNullable<SessionWorker["configured"]>["caller"]["to"];
