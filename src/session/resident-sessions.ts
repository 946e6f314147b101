import { threadId } from "node:worker_threads";
import { type Clock, ignore, loopTurn, onAbort } from "../async/index.js";
import { aborted, TroupeError } from "../kernel/index.js";
import type { OperationSpec, PluginManifest } from "../plugin/index.js";
import { ToolPool } from "../tools/index.js";
import { PhaseProbe } from "../trace/index.js";
import { encode, Lane, type Served } from "../wire/index.js";
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
  TreeMessage,
  TurnCall,
  UsageNote,
} from "./protocol.js";
import { Residency, remnantOf, restoreRemnant } from "./residency.js";
import type { Session } from "./session.js";
import type { LifeChart } from "./session-life.js";
import type { SessionServices, SessionSnapshot } from "./session-parts.js";
import { Surfaces } from "./surface.js";
import { suspension } from "./suspension.js";
import { packResult, type TurnReply } from "./turn-reply.js";
import { UnderWay } from "./under-way.js";
import { WorkerLink } from "./worker-link.js";
import { workerServices } from "./worker-services.js";

/** What a session worker is made of, beside what it is told to be. */
export interface WorkerParts {
  readonly toolEntry: URL;
  readonly clock: Clock;
  readonly heap: Heap;
  readonly service: Served<SessionWorkerService>;
}

interface ResidentParts extends WorkerParts {
  readonly setup: SessionWorkerSetup;
  readonly pool: ToolPool;
  readonly probe: PhaseProbe;
  readonly models: SessionServices["models"];
  readonly surfaces: Surfaces;
}

/** The sessions of a worker, and what they share. */
export class ResidentSessions {
  readonly #services: SessionServices;
  readonly #parts: ResidentParts;
  readonly #lane: Lane;
  readonly #sessions: Residency;
  readonly #observations: Observations;
  readonly #underWay = new UnderWay();
  #closing = false;

  static async create(setup: SessionWorkerSetup, parts: WorkerParts): Promise<ResidentSessions> {
    const { toolEntry, clock } = parts;
    const pool = new ToolPool({ entry: toolEntry, maxThreads: setup.pool.maxThreads, clock });
    try {
      const probe = new PhaseProbe();
      const models = await loadModels(setup, clock);
      // Plugins can ask for services only once there are sessions, and so a host.
      let host: ResidentSessions | undefined;
      const gate: HostGate = (call) => (host as ResidentSessions).#callHost(call);
      const links = await makeLinks(setup, { clock, probe, host: gate, development: setup.development });
      checkPluginIds(links);
      const surfaces = new Surfaces(links, await otherTools(setup, pool), setup.hookDispatch);
      host = new ResidentSessions({ ...parts, setup, pool, probe, models, surfaces });
      return host;
    } catch (error) {
      await pool.close();
      throw error;
    }
  }

  private constructor(parts: ResidentParts) {
    const { setup, clock, heap, service } = parts;
    this.#parts = parts;
    this.#sessions = new Residency(setup.residency, {
      clock,
      heap,
      onFull: (share) => this.#lane.note("full", share satisfies FullNote),
    });
    this.#observations = new Observations(
      (reader, observed) => this.#lane.note("observed", [reader, observed] satisfies ObservedNote),
      clock,
    );
    this.#lane = new Lane(setup.mainPort, {
      name: "The main thread",
      clock,
      serve: (method, payload, call) => {
        if (method === "turn") return this.#turn(payload as TurnCall);
        // Both sides of the lane are typed by SESSION_CALLS.
        return service[method as SessionMethod](payload as never, call.signal);
      },
      onNote: (topic, payload) => this.#note(topic, payload),
    });
    this.#services = workerServices({
      ...parts,
      lane: this.#lane,
      sessionOf: (sessionId) => this.#sessions.get(sessionId)?.session,
      host: (call) => this.#callHost(call),
      onStoreLost: (error) => this.#storeLost(error),
    });
  }

  get #links(): readonly PluginLink[] {
    return this.#parts.surfaces.links;
  }

  get inlineManifests(): PluginManifest[] {
    // In the order of the options: the standard protocol, when it is there, is nobody's entry.
    return this.#parts.setup.plugins.flatMap(({ tier }, index) => {
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
      this.#underWay
        .stoppable({ sessionId, given }, (signal) =>
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
    this.#underWay.cancelSession(sessionId, reason);
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

  /** `known`: how many of its histograms the asker has. */
  stats(known: number): Omit<SessionWorkerStats, "threadId"> {
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
      heapShare: this.#parts.heap.share(),
      turns: this.#underWay.ended,
      hookMessages,
      histograms: this.#parts.probe.entries(known),
    };
  }

  async shutdown(drainMs: number): Promise<void> {
    this.#closing = true;
    this.#sessions.close();
    const actors = this.#sessions.actors();
    for (const actor of actors) actor.leave();
    const hurry = this.#services.clock.timeout(drainMs, () => {
      // With a journal a turn is not lost by closing: it goes on when its session is next opened.
      if (!this.#parts.setup.journals) this.#underWay.cancelTurns("The runtime is closing.");
      this.#stopAll({ turns: suspension(), others: new TroupeError("closed", "The runtime is closing.") });
    });
    await Promise.all(actors.map((actor) => actor.ended()));
    hurry.cancel();
    this.#observations.close();
    await this.#parts.pool.close();
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

  #stopAll(reasons: Parameters<UnderWay["stopAll"]>[0]): void {
    this.#underWay.stopAll(reasons);
    for (const actor of this.#sessions.actors()) {
      actor.suspend(reasons.turns);
      actor.session?.completions.close();
    }
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
      stoppable: (run) => this.#underWay.stoppable({ sessionId }, run),
    });
    this.#sessions.add(actor);
    return actor;
  }

  async #callHost({ sessionId, ...call }: Parameters<HostGate>[0]): Promise<unknown> {
    const session = this.#sessions.get(sessionId)?.session;
    if (session === undefined) throw new TroupeError("session_closed", `Session ${sessionId} is not open.`);
    return this.#underWay.stoppable({ sessionId, given: call.signal }, (signal) =>
      callHost(session, { ...call, signal }),
    );
  }

  async #turn([key, sessionId, input, listening, extras, again]: TurnCall): Promise<TurnReply> {
    const send = (activity: ActivityNote[1]) => this.#lane.note("activity", [key, activity] satisfies ActivityNote);
    const turn = new ActiveTurn({ sessionId, listening, send });
    const result = await this.#underWay.turn(key, turn, () => {
      const { journals, runtimeId } = this.#parts.setup;
      if (!journals) return this.actor(sessionId).turn(input, turn, extras);
      const call = `${runtimeId}:${key}`;
      if (again !== true) return this.actor(sessionId).turn(input, turn, extras, { call });
      return this.hold(sessionId, (actor) => actor.turnAgain(input, turn, extras ?? NO_EXTRAS, call));
    });
    return packResult(result);
  }

  #note(topic: string, payload: unknown): void {
    if (topic === "listen") this.#underWay.find(payload as number)?.listen();
    else if (topic === "cancel") {
      const [key, reason] = payload as CancelNote;
      this.#underWay.find(key)?.cancel(reason);
    } else if (topic === "usage") {
      const [sessionId, entry] = payload as UsageNote;
      // A session that has been closed meanwhile is not opened for its child's bill; one that is parked is.
      if (this.#sessions.get(sessionId) === undefined && !this.#sessions.isParked(sessionId)) return;
      this.use(sessionId, (session) => session.spending.record(entry)).catch(ignore);
    }
  }
}

function busy(sessionId: string): TroupeError {
  return new TroupeError("session_busy", `Session ${sessionId} has a turn running.`, { retryable: true });
}
