import { threadId } from "node:worker_threads";
import { ignore, loopTurn, onAbort, Together } from "../../async/index.js";
import {
  aborted,
  type Cancellation,
  type Head,
  type Identity,
  type PendingCall,
  runtimeClosed,
  sessionBusy,
  sessionClosed,
  sessionExists,
  type TroupeError,
} from "../../kernel/index.js";
import { OPERATION_HOSTS } from "../../plugin/index.js";
import type { NoteTaker, ToolNote } from "../../tools/index.js";
import { encode } from "../../wire/index.js";
import type {
  ArgumentOf,
  FullNote,
  InspectedNote,
  LoneAnswer,
  OpeningOptions,
  OperationReceipt,
  ParkedNotes,
  PayerAnswer,
  SessionInfo,
  SessionMaking,
  SessionState,
  ToldBy,
  UsageNote,
} from "../calls/index.js";
import { callHost } from "../host-services/index.js";
import { suspension } from "../journal/index.js";
import {
  adoptSession,
  agentMismatch,
  checkSamePlugins,
  checkTenant,
  type Inspector,
  openSession,
  renameFor,
  SessionActor,
  type SessionActorOptions,
  type SessionSnapshot,
  setAgent,
  snapshotOf,
} from "../life/index.js";
import type { HostGate } from "../plugins/index.js";
import { isCalled, type LifeChart, type Session, type SessionServices } from "../state/index.js";
import type { Observations } from "./observations.js";
import { type Heap, parkedNotesOf, Residency, restoreParkedNotes } from "./residency.js";
import type { ActiveTurn, UnderWay } from "./under-way.js";
import { type ServiceParts, workerServices } from "./worker-parts.js";

interface ResidentParts extends Omit<ServiceParts, "sessionOf" | "host" | "onStoreLost"> {
  readonly heap: Heap;
  readonly observations: Observations;
  readonly underWay: UnderWay;
}

/** The sessions of a worker: in memory, or parked and brought back when somebody asks something of them. */
export class ResidentSessions {
  readonly services: SessionServices;
  readonly #parts: ResidentParts;
  readonly #sessions: Residency<SessionActor>;
  /** Which sessions somebody inspects, in memory or still to be opened. */
  #inspected: ReadonlySet<string> | "all" = new Set<string>();
  /** Turns that inputs begin, of whatever session. */
  readonly #together: Together;
  #closing = false;
  #toldUnasked = false;

  constructor(parts: ResidentParts) {
    const { setup, clock, heap, lane } = parts;
    this.#parts = parts;
    this.#together = new Together(clock);
    this.#sessions = new Residency(setup.residency, {
      clock,
      heap,
      onFull: (share) => lane.note("full", share satisfies FullNote),
    });
    this.services = workerServices({
      ...parts,
      sessionOf: (sessionId) => this.inMemory(sessionId),
      host: (call) => this.callHost(call),
      onStoreLost: (error) => this.#storeLost(error),
    });
  }

  /** The session as far as it is open here now. */
  inMemory(sessionId: string): Session | undefined {
    return this.#sessions.get(sessionId)?.session;
  }

  /** A tool said something in the name of a call. */
  noted(call: Parameters<NoteTaker>[0], note: ToolNote): void {
    this.inMemory(call.sessionId)?.completions.noted(call, note);
  }

  /** The session's actor, opened from the store when it is not resident. It may park as soon as nobody needs it. */
  actor(sessionId: string): SessionActor {
    // What is asked of a handle takes the session from nobody: only the host's opening it does.
    return this.#sessions.get(sessionId) ?? this.#open(sessionId, { take: "free" });
  }

  /** Parked is not closed: a session that comes back goes on with the options it was opened with. */
  #open(sessionId: string, { take, tenant, agent }: Pick<ToldBy<"open">, "take" | "tenant" | "agent">): SessionActor {
    this.#checkIntake();
    const notes = this.#sessions.take(sessionId);
    const open = async (chart: LifeChart) => {
      try {
        const session = await openSession(this.services, sessionId, {
          ...(tenant !== undefined && { tenant }),
          ...(agent !== undefined && { agent }),
          ...notes,
          chart,
          take,
        });
        if (notes !== undefined) restoreParkedNotes(session, notes);
        return session;
      } catch (error) {
        if (notes !== undefined) this.#sessions.arrive(sessionId, notes);
        throw error;
      }
    };
    return this.#start(sessionId, open);
  }

  /** Opens a session for a host. The options are for a first opening; one that fails leaves nothing of them here. */
  async open({ sessionId, take, ...given }: ArgumentOf<"open">): Promise<SessionInfo> {
    const resident = this.#sessions.get(sessionId);
    const known = resident !== undefined || this.#sessions.isAway(sessionId);
    if (!known) this.#sessions.arrive(sessionId, given);
    try {
      if (resident === undefined) this.#open(sessionId, { take, ...given });
      return await this.hold(sessionId, async (actor) => {
        const session = await actor.opened();
        if (known) await reopened(actor, session, given);
        return infoOf(actor);
      });
    } catch (error) {
      if (!known) this.#sessions.take(sessionId);
      throw error;
    }
  }

  /** Does something with a session's actor, at once; the session stays in memory until it is done. */
  async hold<T>(sessionId: string, call: (actor: SessionActor) => Promise<T>): Promise<T> {
    const actor = this.actor(sessionId);
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
    const notes = this.#sessions.notesOf(sessionId);
    if (notes === undefined) return this.hold(sessionId, infoOf);
    const head = await this.services.store.head(sessionId);
    // One that was never stored says whose it is in what it left here.
    return { ...storedInfo(sessionId, "parked", head), ...ofWhom(head ?? notes) };
  }

  /** Resolves when the session is stored and no longer in memory. */
  async park(sessionId: string): Promise<void> {
    await this.#sessions.get(sessionId)?.parked();
    // In a message of its own, behind the one with the answers of what was done before: each caller hears in that order.
    await loopTurn(this.services.clock);
  }

  /** Gives a session up to another worker, with what it leaves here. */
  async handOver(sessionId: string): Promise<ParkedNotes> {
    const actor = this.#sessions.get(sessionId);
    if (actor?.state === "running" || actor?.session?.mayPark === false)
      throw sessionBusy(sessionId, "has a turn running");
    const wasParked = this.#sessions.isParked(sessionId);
    try {
      await actor?.parked();
    } finally {
      // The other worker finds it free, also when it could not be stored.
      await this.services.store.released();
    }
    return { ...this.#sessions.take(sessionId), wasParked };
  }

  takeOver(sessionId: string, notes: ParkedNotes): void {
    if (this.#sessions.get(sessionId) === undefined) this.#sessions.arrive(sessionId, notes);
  }

  adopt(sessionId: string, snapshot: SessionSnapshot, making: SessionMaking): SessionActor {
    if (this.#sessions.get(sessionId) !== undefined || this.#sessions.isAway(sessionId)) {
      throw sessionExists(sessionId);
    }
    return this.#start(sessionId, (chart) => adoptSession(this.services, sessionId, { chart, snapshot, making }));
  }

  /**
   * A caller that named the kind knows whether an abort ends its wait. For one that named the plugin it does here, except
   * for a task that has begun.
   */
  operate({ sessionId, ...request }: ArgumentOf<"operate">, given: AbortSignal): Promise<OperationReceipt> {
    return new Promise((resolve, reject) => {
      const letGo = onAbort("kind" in request ? undefined : given, () => reject(aborted(given)));
      const run = (signal: AbortSignal) =>
        this.hold(sessionId, (actor) => actor.operate({ ...request, signal, onTask: letGo }));
      this.#parts.underWay.stoppable(sessionId, run, given).then(resolve, reject).finally(letGo);
    });
  }

  runTool({ sessionId, ...request }: ArgumentOf<"runTool">, given: AbortSignal): Promise<LoneAnswer> {
    const run = (signal: AbortSignal) => this.hold(sessionId, (actor) => actor.runTool({ ...request, signal }));
    return this.#parts.underWay.stoppable(sessionId, run, given);
  }

  snapshot(sessionId: string, at?: string): Promise<Uint8Array<ArrayBuffer>> {
    return this.hold(sessionId, async (actor) => {
      const session = await actor.opened();
      const live = actor.state === "idle" || actor.state === "parking";
      return encode(await snapshotOf(session, { live, at }));
    });
  }

  /** May a child's model call begin? While it is under way the session stays in memory, which knows of it. */
  async admitChild(sessionId: string, { call, waits }: ToldBy<"admitChild">): Promise<PayerAnswer> {
    const actor = this.actor(sessionId);
    actor.hold();
    const session = await actor.opened().catch((error: unknown) => {
      actor.letGo();
      throw error;
    });
    return session.spending.children.admit(call, { waits, onEnd: () => actor.letGo() });
  }

  /** Usage of a session's child, for its ledger. */
  async bill([sessionId, entry, call]: UsageNote): Promise<void> {
    // A session that has been closed meanwhile is not opened for its child's bill; one that is parked is.
    if (this.#sessions.get(sessionId) === undefined && (entry === undefined || !this.#sessions.isAway(sessionId)))
      return;
    await this.use(sessionId, async ({ spending, services }) => {
      // Counted at once, and then stored.
      const stored = entry && spending.record(entry);
      if (entry !== undefined) spending.children.counted(entry);
      if (call !== undefined) {
        spending.children.ended(call);
        // Behind what that cost, on the same way.
        if (spending.isLimited) void services.relay("payersLeft", { sessionId, call }).catch(ignore);
      }
      await stored;
    });
  }

  async releaseIdle(sessionId: string): Promise<void> {
    if (this.#sessions.get(sessionId)?.state === "running") throw sessionBusy(sessionId, "has a turn running");
    await this.release(sessionId);
  }

  async release(sessionId: string): Promise<void> {
    const actor = this.#sessions.get(sessionId);
    actor?.leave();
    await actor?.ended();
    this.#sessions.take(sessionId);
    await this.services.store.released();
    if (actor?.failure !== undefined) throw actor.failure;
  }

  /** One of the handles of a turn cancels it. */
  cancelAsked({ sessionId, stop }: Pick<ActiveTurn, "sessionId" | "stop">, cancellation: Cancellation): void {
    stop.cancel(cancellation).catch(ignore);
    void this.#sessions.get(sessionId)?.cancelNamesakes(stop, cancellation).catch(ignore);
  }

  /** Cancels whatever a session is at, whoever asked for it. */
  async cancelWork(sessionId: string, reason: string): Promise<void> {
    this.#parts.underWay.cancelSession(sessionId, reason);
    const actor = this.#sessions.get(sessionId);
    // Nobody holds a turn that was taken up again; its journal goes with the session.
    actor?.suspend();
    actor?.leave();
  }

  /** Ends a session whether or not it can be stored: it is about to be deleted. */
  async discard(sessionId: string): Promise<void> {
    const actor = this.#sessions.get(sessionId);
    if (actor?.state === "running" && !actor.isLeaving) throw sessionBusy(sessionId, "has a turn running");
    await this.release(sessionId).catch(ignore);
  }

  /** Takes no more sessions, and lets those there are go; resolves when all have ended. */
  async close(): Promise<void> {
    this.#closing = true;
    this.#sessions.close();
    const actors = this.#sessions.actors();
    for (const actor of actors) actor.leave();
    await Promise.all(actors.map((actor) => actor.ended()));
  }

  get waitingCalls(): readonly PendingCall[] {
    return this.#sessions.actors().flatMap(({ session }) => session?.waitingCalls.all ?? []);
  }

  get counts(): Residency<SessionActor>["counts"] {
    return this.#sessions.counts;
  }

  inspect(sessions: readonly string[] | "all"): void {
    this.#inspected = sessions === "all" ? sessions : new Set(sessions);
    for (const actor of this.#sessions.actors()) actor.inspect(this.#inspectorOf(actor.id));
  }

  /** A session nobody inspects has no inspector and sends nothing. */
  #inspectorOf(sessionId: string): Inspector | undefined {
    if (this.#inspected !== "all" && !this.#inspected.has(sessionId)) return undefined;
    const { lane, clock } = this.#parts;
    return (event, state) =>
      lane.note("inspected", { sessionId, event, state, at: clock.wallNow() } satisfies InspectedNote);
  }

  /** What cannot be stored is not gone on with: it might wait for days before it found out. */
  #storeLost(error: TroupeError): void {
    if (!this.#closing) this.stopAll({ turns: error, others: error });
  }

  /** Turns stay as their journals have them. */
  stopAll(reasons: Parameters<UnderWay["stopAll"]>[0]): void {
    // Turns first: what is told to the others does not leave a turn that inputs began as its journal has it.
    for (const actor of this.#sessions.actors()) actor.suspend(reasons.turns);
    this.#parts.underWay.stopAll(reasons);
    for (const actor of this.#sessions.actors()) actor.session?.completions.close();
  }

  /** Turns in which nothing goes on but waiting for people stay as their journals have them: nobody can answer any more. */
  suspendWaiting(but: ReadonlySet<string>): void {
    for (const actor of this.#sessions.actors()) {
      const { completions } = actor.session ?? {};
      if (completions?.onlyWaits !== true || but.has(actor.id)) continue;
      actor.suspend();
      this.#parts.underWay.stopTurnsOf(actor.id, suspension());
      completions.close();
    }
  }

  #checkIntake(): void {
    if (this.#closing) throw runtimeClosed();
  }

  /** Once, and before the turn can end the thread: what becomes of this thread may then be a turn's doing. */
  #tellUnasked(): void {
    if (this.#toldUnasked) return;
    this.#toldUnasked = true;
    const { lane } = this.#parts;
    lane.note("unasked", undefined);
    lane.flush();
  }

  #start(sessionId: string, open: SessionActorOptions["open"]): SessionActor {
    this.#checkIntake();
    const actor = new SessionActor(sessionId, {
      open,
      clock: this.services.clock,
      mailboxLimit: this.services.mailboxLimit,
      inspector: this.#inspectorOf(sessionId),
      onActivity: (activity) => this.#parts.observations.tell(sessionId, activity),
      onLeft: (refusal) => this.#parts.observations.left(sessionId, refusal),
      isWatched: () => this.#parts.observations.isWatched(sessionId),
      onRest: () => this.#sessions.rested(actor),
      onMoved: (error) => {
        this.#parts.underWay.cancelSession(sessionId, error);
        actor.suspend(error);
        actor.session?.completions.close();
      },
      onEnded: () => {
        this.#sessions.remove(actor);
        const { session, state } = actor;
        // Nobody's, until it is opened again; one that could not be stored is held by whoever claims it next.
        if (session !== undefined) this.services.store.release(sessionId, session.stored.epoch);
        if (state === "parked" && session !== undefined) this.#sessions.arrive(sessionId, parkedNotesOf(session));
      },
      onUnasked: () => this.#tellUnasked(),
      together: this.#together,
      stoppable: (run, stop) => this.#parts.underWay.stoppable(sessionId, run, undefined, stop),
    });
    this.#sessions.add(actor);
    return actor;
  }

  /** A host service, asked by a job that runs beside the session's turns. */
  callForJob({ sessionId, ...call }: ArgumentOf<"jobCall">, given: AbortSignal): Promise<unknown> {
    const granted = OPERATION_HOSTS.task;
    return this.use(sessionId, (session) =>
      this.#parts.underWay.stoppable(sessionId, (signal) => callHost(session, { ...call, granted, signal }), given),
    );
  }

  /** A host service, asked by a plugin of a session. */
  async callHost({ sessionId, ...call }: Parameters<HostGate>[0]): Promise<unknown> {
    const session = this.#sessions.get(sessionId)?.session;
    if (session === undefined) throw sessionClosed(sessionId, "is not open");
    return this.#parts.underWay.stoppable(sessionId, (signal) => callHost(session, { ...call, signal }), call.signal);
  }
}

/** What a host says of a session that is open already: whose it is must fit, and what it is found by is as it says. */
async function reopened(
  actor: SessionActor,
  session: Session,
  { tenant, metadata, agent, plugins }: OpeningOptions,
): Promise<void> {
  const { identity, head } = session.stored;
  if (tenant !== undefined) checkTenant(session.id, identity, tenant);
  if (plugins !== undefined) checkSamePlugins(session.id, identity, plugins);
  if (metadata !== undefined && head !== undefined) await renameFor(session, metadata);
  if (agent === undefined || (identity.agent !== undefined && isCalled(identity.agent, agent))) return;
  // One whose agent is gone, or that had none, is given this one; any other has its own.
  const { agents } = session.services;
  if (identity.agent !== undefined && agents.exactly(identity.agent).agent !== undefined)
    throw agentMismatch(session.id, identity.agent, agent);
  await actor.perform("agent", (opened) => setAgent(opened, agent));
}

async function infoOf(actor: SessionActor): Promise<SessionInfo> {
  const { stored } = await actor.opened();
  return { ...storedInfo(actor.id, actor.state, stored.head), ...ofWhom(stored.identity) };
}

function ofWhom({ tenant, metadata, agent }: Identity): Pick<SessionInfo, "tenant" | "metadata" | "agent"> {
  return {
    ...(tenant !== undefined && { tenant }),
    ...(metadata && { metadata }),
    ...(agent !== undefined && { agent }),
  };
}

function storedInfo(id: string, state: SessionState, head: Head | undefined): SessionInfo {
  const { turnIndex: turns = 0, revision = 0, parent } = head ?? {};
  return { id, state, threadId, turns, revision, ...(parent && { parent: parent.sessionId }), ...ofWhom(head ?? {}) };
}
