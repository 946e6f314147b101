import { type MessagePort, threadId } from "node:worker_threads";
import { type Clock, ignore, loopTurn } from "../../async/index.js";
import { pluginUnknown, runtimeClosed, TroupeError } from "../../kernel/index.js";
import { type PluginManifest, triggerSource, trustSchemas, usableSchemas } from "../../plugin/index.js";
import { type NoteTaker, readNote, SchemaChecks, ToolPools } from "../../tools/index.js";
import { PhaseProbe } from "../../trace/index.js";
import { decode, Lane, moving, type Served, serve, threadIdOfSystem } from "../../wire/index.js";
import {
  type ActivityNote,
  type AgentsSetup,
  type CancelNote,
  type EventNote,
  type FloatingNote,
  type HostDownNote,
  type HostToolCall,
  type ObservedNote,
  packResult,
  type SessionMethod,
  type SessionWorkerService,
  type SessionWorkerSetup,
  type SessionWorkerStats,
  type ToolNoteOf,
  type TurnCall,
  type TurnReply,
  UNSAYABLE,
  type UsageNote,
  type WantedNote,
} from "../calls/index.js";
import { serveHostCall } from "../host-services/index.js";
import { suspension } from "../journal/index.js";
import { compactSession, configureSession, extendSession, refreshTools, setAgent, treeMessage } from "../life/index.js";
import { type PluginGroup, type TriggeredEvent, WorkerLink } from "../plugins/index.js";
import { Agents, answerCall, cancelInput } from "../state/index.js";
import { NO_EXTRAS } from "../turn/index.js";
import { checkAgent } from "./check-agent.js";
import { checkTrigger } from "./check-trigger.js";
import { hostViewOf, turnResultOf } from "./look-up.js";
import { Observations } from "./observations.js";
import type { Heap } from "./residency.js";
import { ResidentSessions } from "./resident-sessions.js";
import { ownersOf, UncaughtErrors } from "./uncaught.js";
import { ActiveTurn, UnderWay } from "./under-way.js";
import { WorkerEvents } from "./worker-events.js";
import { type LoadedSetup, loadSetup } from "./worker-parts.js";

/** What a session worker is made of, beside what it is told to be. */
export interface WorkerParts {
  readonly toolEntry: URL;
  readonly clock: Clock;
  readonly heap: Heap;
  /** Called when its sessions are stored, and nothing is left to do. */
  readonly onShutdown: () => void;
}

/** The session worker's side of everything the main thread asks of it. */
export function serveSessions(parentPort: MessagePort, parts: WorkerParts): void {
  let wiring: WorkerWiring | undefined;
  const uncaught = new UncaughtErrors();
  uncaught.listen(process);
  const worker = (): WorkerWiring => {
    if (wiring === undefined)
      throw new TroupeError("worker_not_configured", "This session worker is not configured yet.");
    return wiring;
  };
  const sessions = () => worker().sessions;
  const actor = (sessionId: string) => sessions().actor(sessionId);
  const noted: NoteTaker = (call, note) => sessions().noted(call, note);
  const service = {
    async configure(setup) {
      const { toolEntry, clock } = parts;
      trustSchemas(setup.usableSchemas);
      uncaught.owners = ownersOf(setup);
      const pool = new ToolPools({
        entry: toolEntry,
        maxThreads: setup.pool.maxThreads,
        clock,
        tools: setup.poolTools,
        noted,
      });
      const checks = new SchemaChecks({ entry: toolEntry, clock });
      const probe = new PhaseProbe();
      const events =
        setup.events &&
        new WorkerEvents({
          ...setup.events,
          clock,
          sessionOf: (sessionId) => sessions().inMemory(sessionId),
          tell: (event) => worker().note("event", event satisfies EventNote),
        });
      try {
        // Plugins can ask for services only once there are sessions, and so a worker.
        const host: ResidentSessions["callHost"] = (call) => sessions().callHost(call);
        const loaded = await loadSetup(setup, {
          clock,
          probe,
          pool,
          host,
          events,
          noted,
          want: (name) => worker().note("wanted", name satisfies WantedNote),
          floating: (note) => worker().note("floating", note satisfies FloatingNote),
          down: (note) => worker().note("hostDown", note satisfies HostDownNote),
        });
        const inline = inlineManifests(setup, loaded);
        uncaught.owners = ownersOf(setup, inline);
        wiring = new WorkerWiring({ ...parts, ...loaded, setup, pool, checks, probe, uncaught, events }, service);
        const known = new Set(setup.usableSchemas);
        const found = usableSchemas().filter((schema) => !known.has(schema));
        return { threadId, tid: threadIdOfSystem(), inline, usableSchemas: found };
      } catch (error) {
        await pool.close();
        throw error;
      }
    },
    prepareAgents: (setup) => worker().prepareAgents(setup),
    setAgents: (setup) => worker().setAgents(setup),
    tenantChanged: ({ tenant }) => sessions().services.tenants?.changed(tenant),
    ping() {},
    attachHost: (lane) => worker().group(lane.group).attach(lane),
    loseHost: (lane) => worker().group(lane.group).lose(lane),
    refuseHost: ({ group, key, code, message }) => worker().group(group).refuse(key, new TroupeError(code, message)),
    failGroup: ({ group, failure }) =>
      worker()
        .group(group)
        .fail(failure && new TroupeError(failure.code, failure.message)),
    lingeringThreads: ({ group, count }) => worker().group(group).threadsLinger(count),
    splitGroup: (argument) => worker().split(argument),
    spreadGroup: ({ group, shards }) => worker().group(group).spread(shards),
    open: (argument) => sessions().open(argument),
    info: ({ sessionId }) => sessions().info(sessionId),
    async capture({ sessionId, at }) {
      const snapshot = await sessions().snapshot(sessionId, at);
      return moving({ snapshot }, [snapshot.buffer]);
    },
    async adopt({ sessionId, snapshot, making }) {
      const { stored, settings } = await sessions().adopt(sessionId, decode(snapshot), making).opened();
      return { sessionId, parentSessionId: stored.head?.parent?.sessionId ?? null, config: settings.config };
    },
    view: ({ sessionId }) =>
      sessions().use(sessionId, (session) => hostViewOf(session, worker().observations.running(sessionId))),
    messages: ({ sessionId, range }) => sessions().use(sessionId, (session) => session.graph.stored(range)),
    tree: async ({ sessionId }) => (await sessions().services.store.tree(sessionId)).map(treeMessage),
    resume: ({ sessionId }) =>
      sessions().use(sessionId, async ({ past, hooks, settings }) => void (await past.ahead(hooks, settings.config))),
    spending: ({ sessionId }) => sessions().use(sessionId, (session) => session.spending.report()),
    setBudget: ({ sessionId, budget }) => sessions().use(sessionId, (session) => session.spending.set(budget)),
    surface: ({ sessionId }) =>
      sessions().use(sessionId, ({ tools, catalog: { surface } }) => ({
        tools: tools.catalog(),
        operations: surface.table.operations(),
        triggers: surface.triggers.all,
      })),
    setAgent: ({ sessionId, agent }) => actor(sessionId).perform("agent", (session) => setAgent(session, agent)),
    setConfig: ({ sessionId, change }) =>
      actor(sessionId).perform("config", (session) => configureSession(session, change)),
    refreshTools: ({ sessionId }) => actor(sessionId).perform("tools", refreshTools),
    compact: ({ sessionId, instructions }) =>
      actor(sessionId).perform("compact", (session) => compactSession(session, instructions)),
    rewind: ({ sessionId, node }) => actor(sessionId).rewind(node),
    append: ({ sessionId, request }) =>
      actor(sessionId).perform("append", ({ graph }) => graph.append(request, { kind: "host" })),
    extend: ({ sessionId, extension }) =>
      actor(sessionId).perform("extend", (session) => extendSession(session, extension)),
    admitChild: ({ sessionId, ...asked }) => sessions().admitChild(sessionId, asked),
    hostCall: ({ sessionId, ...call }) => sessions().use(sessionId, (session) => serveHostCall(session, call)),
    jobCall: (call, signal: AbortSignal) => sessions().callForJob(call, signal),
    addInput: ({ sessionId, ...input }) => sessions().hold(sessionId, (actor) => actor.addInput(input)),
    deliverInput: ({ sessionId, ...input }) => sessions().hold(sessionId, (actor) => actor.deliverInput(input)),
    runTool: (request, signal: AbortSignal) => sessions().runTool(request, signal),
    inputs: ({ sessionId }) =>
      sessions().hold(sessionId, (actor) => actor.behindInputs((session) => session.inputs.untaken)),
    cancelInput: ({ sessionId, named }) =>
      sessions().hold(sessionId, (actor) => actor.behindInputs((session) => cancelInput(session, named))),
    cancelRunning: ({ sessionId, cancellation }) => sessions().hold(sessionId, (actor) => actor.cancel(cancellation)),
    cancelTurn: ({ sessionId, turnId, cancellation }) =>
      sessions().hold(sessionId, (actor) => actor.cancelTurn(turnId, cancellation)),
    answerCall: ({ sessionId, place, answer }) =>
      sessions().hold(sessionId, (actor) => actor.behindInputs((session) => answerCall(session, place, answer))),
    waitingCalls: () => sessions().waitingCalls,
    observe: ({ sessionId, reader, from }) =>
      sessions().use(sessionId, () => worker().observations.observe(sessionId, reader, from)),
    turnResult: ({ sessionId, turnId }) =>
      sessions().use(sessionId, (session) => turnResultOf(session, turnId, worker().observations)),
    unobserve: ({ sessionId, reader }) => worker().observations.unobserve(sessionId, reader),
    releaseIdle: ({ sessionId }) => sessions().releaseIdle(sessionId),
    park: ({ sessionId }) => sessions().park(sessionId),
    handOver: ({ sessionId }) => sessions().handOver(sessionId),
    takeOver: ({ sessionId, notes }) => sessions().takeOver(sessionId, notes),
    operate: (request, signal: AbortSignal) => sessions().operate(request, signal),
    inspect: ({ sessions: wanted }) => sessions().inspect(wanted),
    operations: () => sessions().services.surfaces.common.table.operations(),
    triggers: () => sessions().services.surfaces.common.triggers.all.map(triggerSource),
    checkTrigger: (event) => worker().checkTrigger(event),
    release: ({ sessionId }) => sessions().release(sessionId),
    cancelWork: ({ sessionId, reason }) => sessions().cancelWork(sessionId, reason),
    discard: ({ sessionId }) => sessions().discard(sessionId),
    stats: ({ known }) => worker().stats(known),
    suspendWaiting: ({ but }) => sessions().suspendWaiting(new Set(but)),
    shutdown: ({ drainMs }) => worker().shutdown(drainMs),
  } satisfies Served<SessionWorkerService>;
  serve(parentPort, service);
}

function inlineManifests({ plugins }: SessionWorkerSetup, { surfaces }: LoadedSetup): PluginManifest[] {
  // In the order of the options: the standard protocol, when it is there, is nobody's entry.
  return surfaces.links.flatMap(({ manifest }, index) => (plugins[index]?.tier === "inline" ? [manifest] : []));
}

interface WiringParts extends WorkerParts, LoadedSetup {
  readonly setup: SessionWorkerSetup;
  readonly pool: ToolPools;
  readonly checks: SchemaChecks;
  readonly probe: PhaseProbe;
  readonly uncaught: UncaughtErrors;
  readonly events: WorkerEvents | undefined;
}

/** A session worker: its sessions, and what ties them to the main thread, the plugins, the pool and the store. */
class WorkerWiring {
  readonly sessions: ResidentSessions;
  readonly observations: Observations;
  readonly #parts: WiringParts;
  readonly #lane: Lane;
  readonly #underWay = new UnderWay();
  readonly #agents: Agents;

  constructor(parts: WiringParts, service: Served<SessionWorkerService>) {
    const { setup, clock } = parts;
    this.#parts = parts;
    this.#agents = new Agents(setup.agents.agents, setup.onMissingAgent);
    const lane = new Lane(setup.mainPort, {
      name: "The main thread",
      clock,
      serve: (method, payload, call) => {
        if (method === "turn") return this.#turn(payload as TurnCall);
        // Both sides of the lane are typed by SESSION_CALLS.
        return service[method as SessionMethod](payload as never, call.signal);
      },
      onNote: (topic, payload) => this.#note(topic, payload),
    });
    this.#lane = lane;
    parts.uncaught.connect(lane);
    this.observations = new Observations(
      (reader, observed) => lane.note("observed", [reader, observed] satisfies ObservedNote),
      clock,
    );
    this.sessions = new ResidentSessions({
      ...parts,
      agents: this.#agents,
      lane,
      observations: this.observations,
      underWay: this.#underWay,
    });
  }

  /** A group of plugins, by its number. */
  group(number: number): PluginGroup {
    const group = this.#parts.groups[number];
    if (group === undefined) throw pluginUnknown(`group ${number} of plugins`);
    return group;
  }

  /** A plugin goes into a group of its own; told twice, it is there already. */
  split({ plugin, group: number, setup }: Parameters<SessionWorkerService["splitGroup"]>[0]): void {
    const { groups, surfaces, newGroup } = this.#parts;
    const link = surfaces.links[plugin];
    if (groups[number] !== undefined || !(link instanceof WorkerLink)) return;
    const group = newGroup(setup, number);
    groups[number] = group;
    link.moveTo(group, 0);
  }

  /** The models are there before anybody can have one of the agents. */
  async prepareAgents({ agents, models: sources }: AgentsSetup): Promise<void> {
    const { models, load, surfaces } = this.#parts;
    const loaded = new Map(models);
    for (const [name, source] of Object.entries(sources)) if (!loaded.has(name)) loaded.set(name, await load(source));
    for (const agent of agents) checkAgent(agent, { surfaces, models: loaded });
    for (const [name, model] of loaded) models.set(name, model);
  }

  setAgents({ agents, models: sources }: AgentsSetup): void {
    const { models } = this.#parts;
    for (const name of models.keys()) if (name.startsWith(UNSAYABLE) && !(name in sources)) models.delete(name);
    this.#agents.replace(agents);
  }

  note(topic: string, payload: unknown): void {
    this.#lane.note(topic, payload);
  }

  /** `known`: how many of its histograms the asker has. */
  stats(known: number): SessionWorkerStats {
    const { groups, heap, probe } = this.#parts;
    const hookMessages = { sent: 0, received: 0 };
    for (const { messages } of groups) {
      hookMessages.sent += messages.sent;
      hookMessages.received += messages.received;
    }
    return {
      ...this.sessions.counts,
      heapShare: heap.share(),
      turns: this.#underWay.ended,
      threadId,
      hookMessages,
      tokens: this.sessions.services.tokens.counted,
      histograms: probe.entries(known),
      failures: probe.failures(),
    };
  }

  checkTrigger(event: TriggeredEvent): Promise<string | undefined> {
    return checkTrigger(event, this.#parts);
  }

  async shutdown(drainMs: number): Promise<void> {
    const { setup, clock, pool, checks, surfaces } = this.#parts;
    const ended = this.sessions.close();
    const hurry = clock.timeout(drainMs, () => {
      // With a journal a turn is not lost by closing: it goes on when its session is next opened.
      if (!setup.journals) this.#underWay.stopTurns("The runtime is closing.");
      this.sessions.stopAll({ turns: suspension(), others: runtimeClosed() });
    });
    await ended;
    hurry.cancel();
    this.observations.close();
    await Promise.all([pool.close(), checks.close()]);
    for (const link of surfaces.links) link.close();
    this.sessions.services.store.close();
    // Answers to the last turns are still on their way into the lane; it closes behind them, and only then are we done.
    await loopTurn(clock);
    this.#parts.events?.flush();
    this.#lane.close();
    this.#parts.onShutdown();
  }

  async #turn([key, sessionId, input, listening, extras, again]: TurnCall): Promise<TurnReply> {
    const send = (activity: ActivityNote[1]) => this.#lane.note("activity", [key, activity] satisfies ActivityNote);
    const turn = new ActiveTurn(sessionId, listening, send);
    const result = await this.#underWay.turn(key, turn, () => {
      const { journals, runtimeId } = this.#parts.setup;
      if (!journals) return this.sessions.actor(sessionId).turn(input, turn, extras);
      const call = `${runtimeId}:${key}`;
      if (again !== true) return this.sessions.actor(sessionId).turn(input, turn, extras, { call });
      return this.sessions.hold(sessionId, (actor) => actor.turnAgain(input, turn, extras ?? NO_EXTRAS, call));
    });
    return packResult(result);
  }

  #note(topic: string, payload: unknown): void {
    if (topic === "listen") this.#underWay.find(payload as number)?.listen();
    else if (topic === "cancel") {
      const [key, cancellation] = payload as CancelNote;
      const turn = this.#underWay.find(key);
      if (turn !== undefined) this.sessions.cancelAsked(turn, cancellation);
    } else if (topic === "toolNote") {
      const [call, ...note] = payload as ToolNoteOf;
      const waiting = this.#lane.waiting(call);
      if (waiting !== undefined) this.sessions.noted((waiting.payload as HostToolCall)[2], readNote(note));
    } else if (topic === "usage") this.sessions.bill(payload as UsageNote).catch(ignore);
  }
}
