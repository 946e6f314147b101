import { ignore, systemClock } from "../../async/index.js";
import {
  asTroupeError,
  checkSessionId,
  invalidOptions,
  type TenantBudget,
  type TenantSpendingReport,
} from "../../kernel/index.js";
import { presentable } from "../../model/index.js";
import type { OperationSpec, TriggerOptions, TriggerReceipt } from "../../plugin/index.js";
import type { CancelledTurn, OpeningOptions } from "../../session/index.js";
import {
  checkListRequest,
  type ExportOptions,
  type ImportedSession,
  type ImportOptions,
  type ListRequest,
  type PruneOptions,
  type PruneReport,
  type SessionPage,
  type WorkOptions,
} from "../../store/index.js";
import { EventHub } from "../../trace/index.js";
import {
  Inspections,
  type InspectOptions,
  type Inspector,
  Observers,
  Statistics,
  type TroupeStats,
} from "../observe/index.js";
import { type ResolvedOptions, resolveOptions, type TroupeOptions } from "../options/index.js";
import { Outside } from "../outside/index.js";
import { Runtime } from "../places/index.js";
import { Schedules, type TroupeSchedules, wakeMe } from "../schedules/index.js";
import { type HandleParts, handleOf, Relay, type Session } from "../sessions/index.js";
import { AgentTasks, TaskServices, Tasks, taskTools } from "../tasks/index.js";
import { TriggerServices, Triggers } from "../triggers/index.js";
import { type CancelOptions, cancellationOf, HOST_CANCELLED, Turns } from "../turns/index.js";
import {
  backup,
  type DeleteOptions,
  deleteSession,
  exportSession,
  importSession,
  Moving,
  prune,
} from "../upkeep/index.js";
import { agentsOf, type TroupeAgents } from "./agents.js";
import { drained, leaveWaiting } from "./drain.js";
import { checkKillTarget, type KillTarget } from "./kill-target.js";
import { outsideAnswers } from "./outside-answers.js";
import { checkOpening, type SessionOptions } from "./session-options.js";
import { sharedOf, type TroupeShared } from "./shared.js";
import { TroupeAnswers } from "./troupe-answers.js";

/**
 * Starts a runtime: session workers, plugin workers and the store worker. When something is wrong with the options, a
 * module or the store, every thread already started is stopped and the error says what to do.
 *
 * @example
 * await using troupe = await createTroupe({ store: { path: "./data" } });
 * const session = await troupe.session("chat-42");
 * console.log((await session.turn("Hello")).text);
 */
export async function createTroupe(options: TroupeOptions = {}): Promise<Troupe> {
  const troupe = new Troupe(resolveOptions(options, systemClock));
  try {
    await troupe.start();
    return troupe;
  } catch (error) {
    await troupe.close();
    throw asTroupeError(error, "start_failed");
  }
}

export class Troupe extends TroupeAnswers implements AsyncDisposable {
  readonly #runtime: Runtime;
  readonly #turns: Turns;
  readonly #observers: Observers;
  readonly #inspections: Inspections;
  readonly #relay: Relay;
  readonly #moving: Moving;
  readonly #schedules: Schedules;
  readonly #triggers: Triggers;
  readonly #tasks: Tasks;
  readonly #agentTasks: AgentTasks;
  readonly #outside: Outside;
  readonly #statistics: Statistics;
  readonly #handleParts: HandleParts;
  readonly #events: EventHub | undefined;
  #closing: Promise<void> | undefined;
  #resuming: Promise<unknown> | undefined;

  /** Use {@link createTroupe}. */
  constructor(options: ResolvedOptions) {
    super();
    const { clock, listening } = options;
    const hub = listening && new EventHub({ ...listening, clock, hide: presentable });
    this.#events = hub;
    const runtime: Runtime = new Runtime(options, {
      hub,
      onActivity: (note) => this.#turns.receive(note),
      onObserved: (note) => this.#observers.receive(note),
      onInspected: (inspected) => this.#inspections.receive(inspected),
      relay: (call) => this.#relay.answer(call),
      onFull: (worker) => this.#moving.full(worker),
      onStarted: async (worker) => {
        await runtime.retellOptions(worker);
        await this.#inspections.retell(worker);
        this.#observers.resume(worker.place);
        // In the place of a thread that died, turns go on that nobody asks for again. A turn somebody waits for is
        // taken up by its caller's own call, which is there before it tells anything.
        const left = new Set(runtime.directory.on(worker.place).map(({ id }) => id));
        this.#relay.tenants.released(left);
        if (left.size > 0) this.#resumeSoon((id) => left.has(id) && !runtime.directory.isBusy(id));
      },
      onStoreLost: (error) => runtime.loseStore(error),
    });
    this.#runtime = runtime;
    this.#turns = new Turns(runtime);
    this.#observers = new Observers(runtime);
    this.#inspections = new Inspections(runtime);
    this.#tasks = new Tasks(runtime, (...asked) => tasks.asked(...asked));
    this.#outside = new Outside(runtime, this.#tasks);
    this.#triggers = new Triggers(runtime);
    const tasks = new TaskServices(runtime, this.#tasks);
    const triggers = new TriggerServices(this.#triggers);
    this.#relay = new Relay(runtime, this.#turns, {
      onChildActivity: (line, happened) => this.#observers.childActivity(line, happened),
      outside: outsideAnswers({
        tasks,
        triggers,
        agents: { answer: (ask) => this.#agentTasks.start(ask) },
        outside: this.#outside,
      }),
    });
    this.#agentTasks = new AgentTasks({
      runtime,
      tasks: this.#tasks,
      relay: (call) => this.#relay.answer(call),
      open: (id) => this.#open(id, {}, "free"),
    });
    this.#moving = new Moving(runtime, this.#observers);
    this.#schedules = new Schedules({
      runtime,
      open: (id, opening) => this.#open(id, opening, "free"),
      checkAgent: (name) => runtime.crew.agents.check(name),
    });
    options.builtIns.bodies = {
      wake_me: (args, context) => wakeMe(this.#schedules, clock, args, context),
      ...taskTools(this.#tasks, tasks),
    };
    this.#statistics = new Statistics(runtime.crew);
    this.#handleParts = {
      runtime,
      turns: this.#turns,
      triggers: this.#triggers,
      tasks: this.#tasks,
      observe: (sessionId, options) => this.#observers.observe(sessionId, options),
    };
  }

  protected get runtime(): Runtime {
    return this.#runtime;
  }

  /** Registers, changes and removes agents while the runtime runs. */
  get agents(): TroupeAgents {
    return agentsOf(this.#runtime);
  }

  /** What is asked of sessions at certain times, also of sessions that are parked; kept in the store. */
  get schedules(): TroupeSchedules {
    this.#runtime.checkOpen();
    return this.#schedules;
  }

  /** What plugins share by key, to look at and to delete. */
  get shared(): TroupeShared {
    return sharedOf(this.#runtime);
  }

  /**
   * Tells of an event of the outside world, which a plugin declares as `alias.event`: every session that subscribed to it
   * has it as an input, parked ones too. Stored before anybody is told; nobody having subscribed is an answer too.
   *
   * @example
   * const { matched } = await troupe.trigger("mail.received", { from: "ada@example.com" }, { key: mail.id });
   */
  trigger(source: string, payload: unknown = null, options: TriggerOptions = {}): Promise<TriggerReceipt> {
    this.#runtime.checkOpen();
    return this.#triggers.trigger(source, payload, options);
  }

  /** Starts every thread. */
  async start(): Promise<void> {
    await this.#runtime.crew.start();
    const { left } = this.#runtime.crew.store;
    this.#schedules.start(left.firstWake);
    this.#triggers.start(left.occurrences);
    this.#tasks.start(left);
    this.#outside.start(left.monitors);
    this.#resumeSoon(() => true);
  }

  #resumeSoon(wanted: (sessionId: string) => boolean): void {
    if (!this.#runtime.options.worker.journals) return;
    const resuming = this.#resumeUnfinished(wanted).catch(ignore);
    this.#resuming = Promise.all([this.#resuming, resuming]);
  }

  /**
   * Opens the sessions whose last turn was not finished, or in which turns wait, so that they are run; a session that
   * cannot be opened waits for its host.
   */
  async #resumeUnfinished(wanted: (sessionId: string) => boolean): Promise<void> {
    for (const id of await this.#runtime.crew.store.ask("unfinished", undefined)) {
      if (this.#closing !== undefined) return;
      // Not from whoever may have it by now.
      if (wanted(id)) await this.#open(id, {}, "free").catch(ignore);
    }
  }

  /**
   * Opens a session, or resumes it when the store knows it. From then on it is this runtime's: whoever else had it gets
   * `session_moved` for what it does next. Options are for this opening; `tenant` says whose a new session is, and is
   * refused with `tenant_mismatch` when it is somebody else's.
   *
   * @example
   * const session = await troupe.session("chat-42", { tenant: "acme", metadata: { topic: "billing" } });
   */
  async session(id: string, options: SessionOptions = {}): Promise<Session> {
    this.#runtime.checkOpen();
    return this.#open(checkSessionId(id), checkOpening(options), "always");
  }

  #open(id: string, opening: OpeningOptions, take: "always" | "free"): Promise<Session> {
    return this.#runtime.directory.use(id, async (residence) => {
      this.#runtime.checkOpen();
      if (!residence.opened && Object.keys(opening).length > 0) residence.opening = opening;
      await this.#runtime.worker(residence.worker).ask("open", { sessionId: id, ...opening, take });
      return handleOf(residence, this.#handleParts);
    });
  }

  /**
   * What a tenant may spend from now on, in the place of what the options say; null: as much as it takes; undefined: as the
   * options say again. Stored; turns that are paused for it go on.
   */
  setTenantBudget(tenant: string, budget: TenantBudget | null | undefined): Promise<void> {
    return this.#relay.tenants.set(tenant, budget);
  }

  /** What a tenant's sessions have spent in the period that is now, running turns included, and what they may. */
  tenantSpending(tenant: string): Promise<TenantSpendingReport> {
    return this.#relay.tenants.spending(tenant);
  }

  /** The queries, commands and tasks the plugins offer, by name. */
  async operations(): Promise<readonly OperationSpec[]> {
    this.#runtime.checkOpen();
    return (await this.#runtime.worker(0).service()).operations(undefined);
  }

  /**
   * Stops a turn by its id (`turn_started` says it), and no other; also one that an earlier process left behind, whose
   * session is opened for it. `ended`: it is stored, or about to be. `unknown`: the session has had no such turn. What was
   * shown of its answer is kept, unless `keepPartial` is false.
   *
   * @example
   * if ((await troupe.cancelTurn("chat-42", "t3", "The user left.")) === "ended") console.log("too late");
   */
  async cancelTurn(
    sessionId: string,
    turnId: string,
    reason: string = HOST_CANCELLED,
    options?: CancelOptions,
  ): Promise<CancelledTurn> {
    if (typeof turnId !== "string") throw invalidOptions("the id of a turn is a text, such as t3");
    const cancellation = cancellationOf(reason, options, true);
    return this.#runtime.ask("cancelTurn", { sessionId: checkSessionId(sessionId), turnId, cancellation });
  }

  /**
   * Tells of every event in the lives of sessions: what happened and the state it led to. Resolves when every worker
   * knows, with the function that ends it; what a session does from then on is told in order, wherever it is and however
   * often it is parked, moved or opened again. Sessions nobody inspects cost nothing.
   *
   * @example
   * const stop = await troupe.inspect(({ sessionId, event, state }) => console.log(sessionId, event, state));
   */
  inspect(listener: Inspector, options: InspectOptions = {}): Promise<() => void> {
    return this.#inspections.inspect(listener, options);
  }

  /** What has been measured so far. */
  async stats(): Promise<TroupeStats> {
    this.#runtime.checkOpen();
    return this.#statistics.read({ turns: { ...this.#turns.counts }, forks: this.#runtime.forks });
  }

  /**
   * Moves a session to another session worker, behind what was asked of it; what is asked meanwhile follows it there.
   * Refused with `session_busy` while a turn runs that waiting inputs began, with `session_unknown` when this runtime
   * has not opened the session. Who watches the session goes on behind a gap.
   *
   * @example
   * await troupe.move("chat-42", 1);
   */
  move(sessionId: string, worker: number): Promise<void> {
    return this.#moving.move(sessionId, worker);
  }

  /** Moves idle sessions from workers that have more to those that have fewer; says how many it moved. */
  rebalance(): Promise<number> {
    return this.#moving.rebalance();
  }

  /**
   * Replaces a session worker's thread by a new one, and so frees whatever it held. The new one is there first; each
   * session finishes what it is at and goes over, and the old thread ends behind the last. The runtime does it by itself
   * when a heap stays full (`recycleAtHeapShare`).
   */
  recycle(worker: number): Promise<void> {
    return this.#moving.recycle(worker);
  }

  /**
   * Deletes a session for good; false when the store had none. Its id is not used again (`session_deleted`); forks of it,
   * and sessions it created, go on. What only it led to is removed by the next `prune`. While a turn runs or waits it is
   * refused with `session_busy`, unless that is to be cancelled.
   *
   * @example
   * await troupe.deleteSession("chat-42", { running: "cancel" });
   */
  deleteSession(id: string, options: DeleteOptions = {}): Promise<boolean> {
    const onGone = () => {
      this.#observers.ended(id);
      this.#relay.forget(id);
    };
    return deleteSession(this.#runtime, id, options, { onGone });
  }

  /**
   * The sessions in the store, page by page, in the order of their ids. A session that never had a turn is not there yet.
   *
   * @example
   * for (let after: string | null | undefined; after !== null; ) {
   *   const { sessions, next } = await troupe.listSessions({ after });
   *   for (const { id, turns } of sessions) console.log(id, turns);
   *   after = next;
   * }
   */
  async listSessions(page: ListRequest = {}): Promise<SessionPage> {
    // What is no data would not get to the store.
    checkListRequest(page);
    return this.#runtime.store.ask("list", page);
  }

  /**
   * Is there a session of this id: is it stored, or has this runtime it open? Asking opens nothing.
   *
   * @example
   * if (!(await troupe.has("chat-42"))) reply.code(404);
   */
  async has(id: string): Promise<boolean> {
    checkSessionId(id);
    if (this.#runtime.directory.find(id)?.opened === true) return true;
    return this.#runtime.store.ask("has", { sessionId: id });
  }

  /**
   * Removes from the store what no session leads to any more: history and attachments of deleted sessions, older plugin
   * state; and journals, when it is told how old. Says what it kept and removed. Commits go on meanwhile.
   *
   * @example
   * const { segments, components } = await troupe.prune();
   */
  async prune(options: PruneOptions = {}): Promise<PruneReport> {
    return prune(this.#runtime, options);
  }

  /**
   * A session as it is stored, with its whole history, state and attachments, as bytes or in a `file`: there whole or not
   * at all. As `json` people can read it; both forms can be imported.
   *
   * @example
   * await troupe.exportSession("chat-42", { file: "chat-42.troupe" });
   * const bytes = await troupe.exportSession("chat-42", { format: "json" });
   */
  exportSession(id: string, options: ExportOptions & { readonly file: string }): Promise<undefined>;
  exportSession(id: string, options?: ExportOptions): Promise<Uint8Array>;
  exportSession(id: string, options: ExportOptions & { readonly file?: string } = {}): Promise<Uint8Array | undefined> {
    return exportSession(this.#runtime, id, options);
  }

  /**
   * Makes an exported session one of this store, under its own id or another. Refused, and nothing written, with
   * `session_exists`, `session_deleted`, `export_damaged`, `export_version_unknown` or `export_file_failed`.
   *
   * @example
   * const { sessionId } = await troupe.importSession("chat-42.troupe", { id: "chat-43" });
   * const session = await troupe.session(sessionId);
   */
  async importSession(source: string | URL | Uint8Array, options: ImportOptions = {}): Promise<ImportedSession> {
    const imported = await importSession(this.#runtime, source, options);
    await this.#tasks.imported(imported.sessionId);
    return imported;
  }

  /**
   * Copies the store as it is at one moment into an empty folder, while turns go on. The copy is a store like any other.
   *
   * @example
   * await troupe.backup(`./backups/${new Date().toISOString()}`);
   */
  async backup(folder: string, options: Pick<WorkOptions, "signal"> = {}): Promise<void> {
    return backup(this.#runtime, folder, options);
  }

  /**
   * For tests and operators: ends a thread as a crash would. Of a plugin all threads, or one of them by number (`host`).
   *
   * @example
   * await troupe.kill({ plugin: "acme.budget", host: 0 });
   */
  async kill(target: KillTarget): Promise<void> {
    this.#runtime.checkOpen();
    checkKillTarget(target);
    const { crew } = this.#runtime;
    if ("processes" in target) return this.#outside.kill();
    if ("store" in target) return crew.store.crash();
    if ("sessionWorker" in target) return crew.worker(target.sessionWorker).kill();
    return crew.isolated(target.plugin).kill(target.host);
  }

  /**
   * Brings back a plugin that was given up (`plugin_unavailable`), with nothing held against it; the plugins of its group
   * come with it. One that runs gets new threads, which load its module again.
   *
   * @example
   * await troupe.restartPlugin("acme.budget");
   */
  async restartPlugin(id: string): Promise<void> {
    this.#runtime.checkOpen();
    await this.#runtime.crew.isolated(id).restart();
  }

  /**
   * Stops intake, lets running turns finish (`drainMs`, then they are cancelled), stores the sessions and stops every
   * thread. May be called twice; the second call waits for the first.
   */
  close(): Promise<void> {
    this.#runtime.stopIntake();
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#agentTasks.stop();
    const intakes = [this.#schedules, this.#triggers, this.#tasks];
    await Promise.all([this.#resuming, this.#outside.stopTelling(), ...intakes.map((each) => each.close())]);
    const looked = leaveWaiting(this.#runtime, this.#relay.childTurns);
    const drainMs = await drained(this.#runtime, this.#turns);
    this.#observers.close();
    await this.#runtime.crew.close({ drainMs }).finally(looked);
    await Promise.all([this.#agentTasks.ended(), this.#outside.close()]);
    this.#runtime.directory.clear();
    this.#events?.close();
  }
}
