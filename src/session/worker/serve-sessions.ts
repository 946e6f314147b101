import { type MessagePort, threadId } from "node:worker_threads";
import { type Clock, ignore, loopTurn } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import { type PluginManifest, trustSchemas, usableSchemas } from "../../plugin/index.js";
import { ToolPool } from "../../tools/index.js";
import { PhaseProbe } from "../../trace/index.js";
import { decode, Lane, moving, type Served, serve } from "../../wire/index.js";
import {
  type ActivityNote,
  type CancelNote,
  type ObservedNote,
  packResult,
  type SessionMethod,
  type SessionWorkerService,
  type SessionWorkerSetup,
  type SessionWorkerStats,
  type TurnCall,
  type TurnReply,
  type UsageNote,
  type WantedNote,
} from "../calls/index.js";
import { serveHostCall } from "../host-services/index.js";
import { suspension } from "../journal/index.js";
import { compactSession, configureSession, extendSession, refreshTools, treeMessage } from "../life/index.js";
import { WorkerLink } from "../plugins/index.js";
import { cancelInput, completeTool, viewOf } from "../state/index.js";
import { NO_EXTRAS } from "../turn/index.js";
import { Observations } from "./observations.js";
import type { Heap } from "./residency.js";
import { ResidentSessions } from "./resident-sessions.js";
import { ActiveTurn, UnderWay } from "./under-way.js";
import { type LoadedSetup, loadSetup } from "./worker-parts.js";

/** What a session worker is made of, beside what it is told to be. */
export interface WorkerParts {
  readonly toolEntry: URL;
  readonly clock: Clock;
  readonly heap: Heap;
}

/** The session worker's side of everything the main thread asks of it. */
export function serveSessions(parentPort: MessagePort, parts: WorkerParts): void {
  let wiring: WorkerWiring | undefined;
  const worker = (): WorkerWiring => {
    if (wiring === undefined)
      throw new TroupeError("worker_not_configured", "This session worker is not configured yet.");
    return wiring;
  };
  const sessions = () => worker().sessions;
  const actor = (sessionId: string) => sessions().actor(sessionId);
  const service = {
    async configure(setup) {
      const { toolEntry, clock } = parts;
      trustSchemas(setup.usableSchemas);
      const pool = new ToolPool({ entry: toolEntry, maxThreads: setup.pool.maxThreads, clock });
      const probe = new PhaseProbe();
      try {
        // Plugins can ask for services only once there are sessions, and so a worker.
        const host: ResidentSessions["callHost"] = (call) => sessions().callHost(call);
        const loaded = await loadSetup(setup, { clock, probe, pool, host, want: (plugin) => worker().want(plugin) });
        wiring = new WorkerWiring({ ...parts, ...loaded, setup, pool, probe }, service);
        const known = new Set(setup.usableSchemas);
        const found = usableSchemas().filter((schema) => !known.has(schema));
        return { threadId, inline: inlineManifests(setup, loaded), usableSchemas: found };
      } catch (error) {
        await pool.close();
        throw error;
      }
    },
    attachPlugin: (lane) => worker().workerLink(lane.plugin)?.attach(lane),
    failPlugin: ({ plugin, code, message }) => worker().workerLink(plugin)?.fail(new TroupeError(code, message)),
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
    view: ({ sessionId }) => sessions().use(sessionId, viewOf),
    messages: ({ sessionId, range }) => sessions().use(sessionId, (session) => session.graph.stored(range)),
    tree: async ({ sessionId }) => (await sessions().services.store.tree(sessionId)).map(treeMessage),
    resume: ({ sessionId }) => sessions().use(sessionId, async ({ past, hooks }) => void (await past.ahead(hooks))),
    spending: ({ sessionId }) => sessions().use(sessionId, (session) => session.spending.report()),
    setBudget: ({ sessionId, budget }) => sessions().use(sessionId, (session) => session.spending.set(budget)),
    surface: ({ sessionId }) =>
      sessions().use(sessionId, ({ tools, catalog: { surface } }) => ({
        tools: tools.catalog(),
        operations: surface.table.operations(),
        triggers: surface.triggers.all,
      })),
    setConfig: ({ sessionId, change }) =>
      actor(sessionId).perform("config", (session) => configureSession(session, change)),
    refreshTools: ({ sessionId }) => actor(sessionId).perform("tools", refreshTools),
    compact: ({ sessionId, instructions }) =>
      actor(sessionId).perform("compact", (session) => compactSession(session, instructions)),
    append: ({ sessionId, request }) =>
      actor(sessionId).perform("append", ({ graph }) => graph.append(request, { kind: "host" })),
    extend: ({ sessionId, extension }) =>
      actor(sessionId).perform("extend", (session) => extendSession(session, extension)),
    hostCall: ({ sessionId, ...call }) => sessions().use(sessionId, (session) => serveHostCall(session, call)),
    addInput: ({ sessionId, ...input }) => sessions().hold(sessionId, (actor) => actor.addInput(input)),
    inputs: ({ sessionId }) => sessions().use(sessionId, (session) => session.inputs.untaken),
    cancelInput: ({ sessionId, named }) => sessions().use(sessionId, (session) => cancelInput(session, named)),
    completeTool: ({ sessionId, key, output }) =>
      sessions().use(sessionId, (session) => completeTool(session, key, output)),
    observe: ({ sessionId, reader, cursor }) =>
      sessions().use(sessionId, () => worker().observations.observe(sessionId, reader, cursor)),
    unobserve: ({ sessionId, reader }) => worker().observations.unobserve(sessionId, reader),
    releaseIdle: ({ sessionId }) => sessions().releaseIdle(sessionId),
    park: ({ sessionId }) => sessions().park(sessionId),
    handOver: ({ sessionId }) => sessions().handOver(sessionId),
    takeOver: ({ sessionId, notes }) => sessions().takeOver(sessionId, notes),
    operate: (request, signal: AbortSignal) => sessions().operate(request, signal),
    inspect: ({ sessions: wanted }) => sessions().inspect(wanted),
    operations: () => sessions().services.surfaces.common.table.operations(),
    release: ({ sessionId }) => sessions().release(sessionId),
    cancelWork: ({ sessionId, reason }) => sessions().cancelWork(sessionId, reason),
    discard: ({ sessionId }) => sessions().discard(sessionId),
    stats: ({ known }) => worker().stats(known),
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
  readonly pool: ToolPool;
  readonly probe: PhaseProbe;
}

/** A session worker: its sessions, and what ties them to the main thread, the plugins, the pool and the store. */
class WorkerWiring {
  readonly sessions: ResidentSessions;
  readonly observations: Observations;
  readonly #parts: WiringParts;
  readonly #lane: Lane;
  readonly #underWay = new UnderWay();

  constructor(parts: WiringParts, service: Served<SessionWorkerService>) {
    const { setup, clock } = parts;
    this.#parts = parts;
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
    this.observations = new Observations(
      (reader, observed) => lane.note("observed", [reader, observed] satisfies ObservedNote),
      clock,
    );
    this.sessions = new ResidentSessions({
      ...parts,
      lane,
      observations: this.observations,
      underWay: this.#underWay,
    });
  }

  workerLink(plugin: number): WorkerLink | undefined {
    const link = this.#parts.surfaces.links[plugin];
    return link instanceof WorkerLink ? link : undefined;
  }

  /** Asks for a lane to a plugin's thread. */
  want(plugin: number): void {
    this.#lane.note("wanted", plugin satisfies WantedNote);
  }

  /** `known`: how many of its histograms the asker has. */
  stats(known: number): SessionWorkerStats {
    const { surfaces, heap, probe } = this.#parts;
    const hookMessages = { sent: 0, received: 0 };
    for (const link of surfaces.links) {
      if (!(link instanceof WorkerLink)) continue;
      hookMessages.sent += link.messages.sent;
      hookMessages.received += link.messages.received;
    }
    return {
      ...this.sessions.counts,
      heapShare: heap.share(),
      turns: this.#underWay.ended,
      threadId,
      hookMessages,
      histograms: probe.entries(known),
    };
  }

  async shutdown(drainMs: number): Promise<void> {
    const { setup, clock, pool, surfaces } = this.#parts;
    const ended = this.sessions.close();
    const hurry = clock.timeout(drainMs, () => {
      // With a journal a turn is not lost by closing: it goes on when its session is next opened.
      if (!setup.journals) this.#underWay.stopTurns("The runtime is closing.");
      this.sessions.stopAll({ turns: suspension(), others: new TroupeError("closed", "The runtime is closing.") });
    });
    await ended;
    hurry.cancel();
    this.observations.close();
    await pool.close();
    for (const link of surfaces.links) link.close();
    this.sessions.services.store.close();
    // Answers to the last turns are still on their way into the lane; it closes behind them, and only then are we done.
    await loopTurn(clock);
    this.#lane.close();
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
      const [key, reason] = payload as CancelNote;
      this.#underWay.find(key)?.stop.abort(reason);
    } else if (topic === "usage") this.sessions.bill(payload as UsageNote).catch(ignore);
  }
}
