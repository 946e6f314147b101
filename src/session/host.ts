import { threadId } from "node:worker_threads";
import { abortWith, type Clock, ignore, loopTurn, onAbort } from "../async/index.js";
import { aborted, TroupeError, toolIdOf } from "../kernel/index.js";
import type { OperationSpec, PluginManifest } from "../plugin/index.js";
import { StoreClient } from "../store/index.js";
import { type ToolHome, ToolLimits, ToolPool } from "../tools/index.js";
import { PhaseProbe } from "../trace/index.js";
import { Deadlines, encode, Lane, type Served } from "../wire/index.js";
import { ActiveTurn } from "./active-turns.js";
import { SessionActor, type SessionActorOptions } from "./actor.js";
import { NO_EXTRAS } from "./admission.js";
import { snapshotOf, treeMessage } from "./fork-point.js";
import type { Heap } from "./heap.js";
import { checkPluginIds, loadModels, makeLinks, otherTools } from "./host-parts.js";
import { callHost } from "./host-services.js";
import { Observations } from "./observations.js";
import { adoptSession, openSession } from "./open-session.js";
import type { HostGate, PluginLink } from "./plugin-link.js";
import type {
  ActivityNote,
  ArgumentOf,
  CancelNote,
  FullNote,
  HostToolCall,
  ObservedNote,
  OperationReceipt,
  Remnant,
  SessionInfo,
  SessionMaking,
  SessionMethod,
  SessionPluginOptions,
  SessionWorkerService,
  SessionWorkerSetup,
  SessionWorkerStats,
  TraceNote,
  TreeMessage,
  TurnCall,
  UsageNote,
} from "./protocol.js";
import { Residency, remnantOf, restoreRemnant } from "./residency.js";
import type { Session } from "./session.js";
import type { LifeChart } from "./session-life.js";
import type { SessionServices, SessionSnapshot } from "./session-parts.js";
import { Surfaces } from "./surface.js";
import { Suspects } from "./suspects.js";
import { suspension } from "./suspension.js";
import { packResult, type TurnReply } from "./turn-reply.js";
import { WorkerLink } from "./worker-link.js";

/** What a session worker is made of, beside what it is told to be. */
export interface WorkerParts {
  readonly toolEntry: URL;
  readonly clock: Clock;
  readonly heap: Heap;
  readonly service: Served<SessionWorkerService>;
}

/** The sessions of a worker, and what they share. */
export class SessionHost {
  readonly #services: SessionServices;
  readonly #links: readonly PluginLink[];
  readonly #setup: SessionWorkerSetup;
  readonly #lane: Lane;
  readonly #probe: PhaseProbe;
  readonly #pool: ToolPool;
  readonly #heap: Heap;
  readonly #sessions: Residency;
  readonly #observations: Observations;
  readonly #turns = new Map<number, ActiveTurn>();
  /** Operations, host services and turns nobody holds, by session: told to stop when the runtime closes. */
  readonly #stops = new Map<AbortController, string>();
  #finished = 0;
  #closing = false;

  static async create(
    setup: SessionWorkerSetup,
    { toolEntry, clock, heap, service }: WorkerParts,
  ): Promise<SessionHost> {
    const pool = new ToolPool({ entry: toolEntry, maxThreads: setup.pool.maxThreads, clock });
    try {
      const probe = new PhaseProbe();
      const models = await loadModels(setup, clock);
      // Plugins can ask for services only once there are sessions, and so a host.
      let host: SessionHost | undefined;
      const gate: HostGate = (call) => (host as SessionHost).#callHost(call);
      const links = await makeLinks(setup, { clock, probe, host: gate, development: setup.development });
      checkPluginIds(links);
      const surfaces = new Surfaces(links, await otherTools(setup, pool), setup.hookDispatch);
      host = new SessionHost({ setup, clock, heap, pool, probe, models, surfaces, service });
      return host;
    } catch (error) {
      await pool.close();
      throw error;
    }
  }

  private constructor(parts: {
    readonly setup: SessionWorkerSetup;
    readonly clock: Clock;
    readonly heap: Heap;
    readonly pool: ToolPool;
    readonly probe: PhaseProbe;
    readonly models: SessionServices["models"];
    readonly surfaces: Surfaces;
    readonly service: Served<SessionWorkerService>;
  }) {
    const { setup, clock, heap, surfaces } = parts;
    this.#setup = setup;
    this.#heap = heap;
    this.#sessions = new Residency(setup.residency, {
      clock,
      heap,
      onFull: (share) => this.#lane.note("full", share satisfies FullNote),
    });
    this.#observations = new Observations(
      (reader, observed) => this.#lane.note("observed", [reader, observed] satisfies ObservedNote),
      clock,
    );
    this.#pool = parts.pool;
    this.#probe = parts.probe;
    this.#links = surfaces.links;
    this.#lane = new Lane(setup.mainPort, {
      name: "The main thread",
      clock,
      serve: (method, payload, call) => {
        if (method === "turn") return this.#turn(payload as TurnCall);
        // Both sides of the lane are typed by SESSION_CALLS.
        return parts.service[method as SessionMethod](payload as never, call.signal);
      },
      onNote: (topic, payload) => this.#note(topic, payload),
    });
    this.#services = {
      clock,
      deadlines: new Deadlines(clock),
      store: new StoreClient({ ...setup.store, clock, onLost: (error) => this.#storeLost(error) }),
      models: parts.models,
      prompt: setup.prompt,
      budget: setup.budget,
      prices: setup.prices,
      surfaces,
      homes: { host: this.#hostHome, plugin: this.#pluginHome, pool: parts.pool },
      config: setup.config,
      mailboxLimit: setup.mailboxLimit,
      limits: new ToolLimits(),
      host: (call) => this.#callHost(call),
      relay: (method, argument) => this.#lane.call("relay", [method, argument]),
      journals: setup.journals,
      suspects: new Suspects(),
      trace: { listening: setup.tracing, emit: (event) => this.#lane.note("trace", event satisfies TraceNote) },
    };
  }

  get inlineManifests(): PluginManifest[] {
    // In the order of the options: the standard protocol, when it is there, is nobody's entry.
    return this.#setup.plugins.flatMap(({ tier }, index) => {
      const link = this.#links[index];
      return tier === "inline" && link !== undefined ? [link.manifest] : [];
    });
  }

  workerLink(plugin: number): WorkerLink | undefined {
    const link = this.#links[plugin];
    return link instanceof WorkerLink ? link : undefined;
  }

  /** The session's actor, opened from the store when it is not resident. It may park as soon as nobody needs it. */
  actor(sessionId: string, given?: SessionPluginOptions): SessionActor {
    return this.#sessions.get(sessionId) ?? this.#open(sessionId, given);
  }

  #open(sessionId: string, given: SessionPluginOptions | undefined): SessionActor {
    this.#checkIntake();
    // Parked is not closed: it goes on with the options it was opened with.
    const remnant = this.#sessions.take(sessionId);
    const { pluginOptions } = remnant ?? { pluginOptions: given };
    const open = async (chart: LifeChart) => {
      try {
        const session = await openSession(this.#services, sessionId, { chart, pluginOptions });
        if (remnant !== undefined) restoreRemnant(session, remnant);
        return session;
      } catch (error) {
        if (remnant !== undefined) this.#sessions.leave(sessionId, remnant);
        throw error;
      }
    };
    return this.#start(sessionId, open);
  }

  /** Does something with a session's actor, at once; the session stays in memory until it is done. */
  async hold<T>(
    sessionId: string,
    call: (actor: SessionActor) => Promise<T>,
    pluginOptions?: SessionPluginOptions,
  ): Promise<T> {
    const actor = this.actor(sessionId, pluginOptions);
    actor.hold();
    try {
      return await call(actor);
    } finally {
      actor.letGo();
    }
  }

  /** The same with the session, when it is open. */
  use<T>(sessionId: string, call: (session: Session) => T | Promise<T>): Promise<T> {
    return this.hold(sessionId, async (actor) => call(await actor.opened()));
  }

  /** Of a parked session what the store says: asking does not bring it back. */
  async info(sessionId: string): Promise<SessionInfo> {
    if (!this.#sessions.isParked(sessionId)) return this.hold(sessionId, (actor) => actor.info(threadId));
    const head = await this.#services.store.head(sessionId);
    const { turnIndex: turns = 0, revision = 0, parent } = head ?? {};
    return { id: sessionId, state: "parked", threadId, turns, revision, ...(parent && { parent: parent.sessionId }) };
  }

  async tree(sessionId: string): Promise<readonly TreeMessage[]> {
    return (await this.#services.store.tree(sessionId)).map(treeMessage);
  }

  /** Resolves when the session is stored and no longer in memory. */
  async park(sessionId: string): Promise<void> {
    await this.#sessions.get(sessionId)?.parked();
  }

  /** Gives a session up to another worker, with what it leaves here. */
  async handOver(sessionId: string): Promise<Remnant> {
    const actor = this.#sessions.get(sessionId);
    if (actor?.state === "running" || actor?.session?.mayPark === false) throw busy(sessionId);
    await actor?.parked();
    return this.#sessions.take(sessionId) ?? {};
  }

  takeOver(sessionId: string, remnant: Remnant): void {
    if (this.#sessions.get(sessionId) === undefined) this.#sessions.leave(sessionId, remnant);
  }

  adopt(sessionId: string, snapshot: SessionSnapshot, making: SessionMaking): SessionActor {
    if (this.#sessions.get(sessionId) !== undefined || this.#sessions.isParked(sessionId)) {
      throw new TroupeError("session_exists", `There is already a session ${sessionId}.`, { details: { sessionId } });
    }
    return this.#start(sessionId, (chart) => adoptSession(this.#services, sessionId, { chart, snapshot, making }));
  }

  /**
   * A caller that named the kind knows whether an abort ends its wait. For one that named the plugin it does here, except
   * for a task that has begun.
   */
  operate({ sessionId, ...request }: ArgumentOf<"operate">, given: AbortSignal): Promise<OperationReceipt> {
    return new Promise((resolve, reject) => {
      const letGo = onAbort("kind" in request ? undefined : given, () => reject(aborted(given)));
      this.#stoppable({ sessionId, given }, (signal) =>
        this.hold(sessionId, (actor) => actor.operate({ ...request, signal, onTask: letGo })),
      )
        .then(resolve, reject)
        .finally(letGo);
    });
  }

  observe(sessionId: string, reader: number, cursor: string | undefined): string {
    return this.#observations.observe(sessionId, reader, cursor);
  }

  unobserve(sessionId: string, reader: number): void {
    this.#observations.unobserve(sessionId, reader);
  }

  operations(): OperationSpec[] {
    return this.#services.surfaces.common.table.operations();
  }

  snapshot(sessionId: string, at?: string): Promise<Uint8Array<ArrayBuffer>> {
    return this.hold(sessionId, async (actor) => {
      const session = await actor.opened();
      const live = actor.state === "idle" || actor.state === "parking";
      return encode(await snapshotOf(session, { live, at }));
    });
  }

  async release(sessionId: string, options: { readonly idle?: boolean } = {}): Promise<void> {
    const actor = this.#sessions.get(sessionId);
    if (options.idle === true && actor?.state === "running") {
      throw busy(sessionId);
    }
    actor?.leave();
    await actor?.ended();
    this.#sessions.take(sessionId);
    if (actor?.failure !== undefined) throw actor.failure;
  }

  /** Cancels whatever a session is at, whoever asked for it. */
  async cancelWork(sessionId: string, reason: string): Promise<void> {
    for (const turn of this.#turns.values()) if (turn.sessionId === sessionId) turn.cancel(reason);
    for (const [stop, id] of this.#stops) if (id === sessionId) stop.abort(reason);
    const actor = this.#sessions.get(sessionId);
    // Nobody holds a turn that was taken up again; its journal goes with the session.
    actor?.suspend();
    actor?.leave();
  }

  /** Ends a session whether or not it can be stored: it is about to be deleted. */
  async discard(sessionId: string): Promise<void> {
    const actor = this.#sessions.get(sessionId);
    if (actor?.state === "running" && !actor.isLeaving) throw busy(sessionId);
    await this.release(sessionId).catch(ignore);
  }

  stats(): Omit<SessionWorkerStats, "threadId"> {
    const hookMessages = { sent: 0, received: 0 };
    for (const link of this.#links) {
      if (!(link instanceof WorkerLink)) continue;
      hookMessages.sent += link.messages.sent;
      hookMessages.received += link.messages.received;
    }
    const { resident, parked } = this.#sessions.counts;
    return {
      sessions: resident,
      parked,
      heapShare: this.#heap.share(),
      turns: this.#finished,
      hookMessages,
      histograms: this.#probe.entries(),
    };
  }

  async shutdown(drainMs: number): Promise<void> {
    this.#closing = true;
    this.#sessions.close();
    const actors = this.#sessions.actors();
    for (const actor of actors) actor.leave();
    const hurry = this.#services.clock.timeout(drainMs, () => {
      // With a journal a turn is not lost by closing: it goes on when its session is next opened.
      if (!this.#setup.journals) for (const turn of this.#turns.values()) turn.cancel("The runtime is closing.");
      this.#stopAll({ turns: suspension(), others: new TroupeError("closed", "The runtime is closing.") });
    });
    await Promise.all(actors.map((actor) => actor.ended()));
    hurry.cancel();
    this.#observations.close();
    await this.#pool.close();
    for (const link of this.#links) link.close();
    this.#services.store.close();
    // Answers to the last turns are still on their way into the lane; it closes behind them, and only then are we done.
    await loopTurn(this.#services.clock);
    this.#lane.close();
  }

  /** What cannot be stored is not gone on with: it might wait for days before it found out. */
  #storeLost(error: TroupeError): void {
    if (!this.#closing) this.#stopAll({ turns: error, others: error });
  }

  #stopAll({ turns, others }: { readonly turns: TroupeError; readonly others: TroupeError }): void {
    for (const turn of this.#turns.values()) turn.suspend(turns);
    for (const actor of this.#sessions.actors()) {
      actor.suspend(turns);
      actor.session?.completions.close();
    }
    for (const stop of this.#stops.keys()) stop.abort(others);
  }

  #checkIntake(): void {
    if (this.#closing) throw new TroupeError("closed", "The runtime is closing.");
  }

  #start(sessionId: string, open: SessionActorOptions["open"]): SessionActor {
    this.#checkIntake();
    const actor = new SessionActor(sessionId, {
      open,
      clock: this.#services.clock,
      mailboxLimit: this.#services.mailboxLimit,
      onActivity: (activity) => this.#observations.tell(sessionId, activity),
      onRest: () => this.#sessions.rested(actor),
      onEnded: () => {
        this.#sessions.remove(actor);
        const { session, state } = actor;
        if (state === "parked" && session !== undefined) this.#sessions.leave(sessionId, remnantOf(session));
      },
      stoppable: (run) => this.#stoppable({ sessionId }, run),
    });
    this.#sessions.add(actor);
    return actor;
  }

  async #callHost({ sessionId, ...call }: Parameters<HostGate>[0]): Promise<unknown> {
    const session = this.#sessions.get(sessionId)?.session;
    if (session === undefined) throw new TroupeError("session_closed", `Session ${sessionId} is not open.`);
    return this.#stoppable({ sessionId, given: call.signal }, (signal) => callHost(session, { ...call, signal }));
  }

  /** Does something with a signal that aborts with the given one, and when the runtime closes. */
  async #stoppable<T>(
    { sessionId, given }: { readonly sessionId: string; readonly given?: AbortSignal | undefined },
    run: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const stop = new AbortController();
    const letGo = abortWith(stop, given);
    this.#stops.set(stop, sessionId);
    try {
      return await run(stop.signal);
    } finally {
      this.#stops.delete(stop);
      letGo();
    }
  }

  async #turn([key, sessionId, input, listening, extras, again]: TurnCall): Promise<TurnReply> {
    const send = (activity: ActivityNote[1]) => this.#lane.note("activity", [key, activity] satisfies ActivityNote);
    const turn = new ActiveTurn({ sessionId, listening, send });
    this.#turns.set(key, turn);
    try {
      if (!this.#setup.journals) return packResult(await this.actor(sessionId).turn(input, turn, extras));
      const call = `${this.#setup.runtimeId}:${key}`;
      if (again !== true) return packResult(await this.actor(sessionId).turn(input, turn, extras, { call }));
      return packResult(await this.hold(sessionId, (actor) => actor.turnAgain(input, turn, extras ?? NO_EXTRAS, call)));
    } finally {
      this.#finished++;
      this.#turns.delete(key);
    }
  }

  #note(topic: string, payload: unknown): void {
    if (topic === "listen") this.#turns.get(payload as number)?.listen();
    else if (topic === "cancel") {
      const [key, reason] = payload as CancelNote;
      this.#turns.get(key)?.cancel(reason);
    } else if (topic === "usage") {
      const [sessionId, entry] = payload as UsageNote;
      // A session that has been closed meanwhile is not opened for its child's bill; one that is parked is.
      if (this.#sessions.get(sessionId) === undefined && !this.#sessions.isParked(sessionId)) return;
      this.use(sessionId, (session) => session.spending.record(entry)).catch(ignore);
    }
  }

  readonly #hostHome: ToolHome = {
    run: (tool, args, { sessionId, turnId, callId, signal, cancelGraceMs: graceMs }) => {
      const call: HostToolCall = [tool.spec.name, args, { sessionId, turnId, callId }];
      return this.#lane.call("tool", call, { signal, graceMs });
    },
  };

  readonly #pluginHome: ToolHome = {
    run: (tool, args, context) => {
      const session = this.#sessions.get(context.sessionId)?.session;
      if (tool.home.kind !== "plugin" || session === undefined) {
        throw new TroupeError("tool_unavailable", `${tool.spec.name} cannot be reached.`);
      }
      const { link, slot } = session.hooks.of(tool.home.pluginId);
      return link.tool(slot, toolIdOf(tool.spec), args, context);
    },
  };
}

function busy(sessionId: string): TroupeError {
  return new TroupeError("session_busy", `Session ${sessionId} has a turn running.`, { retryable: true });
}
