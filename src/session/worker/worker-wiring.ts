import { threadId } from "node:worker_threads";
import { type Clock, ignore, loopTurn } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import type { PluginManifest } from "../../plugin/index.js";
import { ToolPool } from "../../tools/index.js";
import { PhaseProbe } from "../../trace/index.js";
import { Lane, type Served } from "../../wire/index.js";
import type {
  ActivityNote,
  CancelNote,
  ObservedNote,
  SessionMethod,
  SessionWorkerService,
  SessionWorkerSetup,
  SessionWorkerStats,
  TurnCall,
  UsageNote,
} from "../calls/index.js";
import { packResult, type TurnReply } from "../calls/index.js";
import { suspension } from "../journal/index.js";
import { ActiveTurn } from "../life/index.js";
import { Surfaces, WorkerLink } from "../plugins/index.js";
import type { SessionServices } from "../state/index.js";
import { NO_EXTRAS } from "../turn/index.js";
import type { Heap } from "./heap.js";
import { Observations } from "./observations.js";
import { ResidentSessions } from "./resident-sessions.js";
import { UnderWay } from "./under-way.js";
import { checkPluginIds, loadModels, makeLinks, otherTools } from "./worker-parts.js";

/** What a session worker is made of, beside what it is told to be. */
export interface WorkerParts {
  readonly toolEntry: URL;
  readonly clock: Clock;
  readonly heap: Heap;
  readonly service: Served<SessionWorkerService>;
}

interface WiringParts extends WorkerParts {
  readonly setup: SessionWorkerSetup;
  readonly pool: ToolPool;
  readonly probe: PhaseProbe;
  readonly models: SessionServices["models"];
  readonly surfaces: Surfaces;
}

/** A session worker: its sessions, and what ties them to the main thread, the plugins, the pool and the store. */
export class WorkerWiring {
  readonly sessions: ResidentSessions;
  readonly observations: Observations;
  readonly #parts: WiringParts;
  readonly #lane: Lane;
  readonly #underWay = new UnderWay();

  static async create(setup: SessionWorkerSetup, parts: WorkerParts): Promise<WorkerWiring> {
    const { toolEntry, clock } = parts;
    const pool = new ToolPool({ entry: toolEntry, maxThreads: setup.pool.maxThreads, clock });
    try {
      const probe = new PhaseProbe();
      const models = await loadModels(setup, clock);
      // Plugins can ask for services only once there are sessions, and so a worker.
      let worker: WorkerWiring | undefined;
      const links = await makeLinks(setup, {
        clock,
        probe,
        host: (call) => (worker as WorkerWiring).sessions.callHost(call),
        development: setup.development,
      });
      checkPluginIds(links);
      const surfaces = new Surfaces(links, await otherTools(setup, pool), setup.hookDispatch);
      worker = new WorkerWiring({ ...parts, setup, pool, probe, models, surfaces });
      return worker;
    } catch (error) {
      await pool.close();
      throw error;
    }
  }

  private constructor(parts: WiringParts) {
    const { setup, clock, service } = parts;
    this.#parts = parts;
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
    this.observations = new Observations(
      (reader, observed) => this.#lane.note("observed", [reader, observed] satisfies ObservedNote),
      clock,
    );
    this.sessions = new ResidentSessions({
      ...parts,
      lane: this.#lane,
      observations: this.observations,
      underWay: this.#underWay,
    });
  }

  get inlineManifests(): PluginManifest[] {
    const { setup, surfaces } = this.#parts;
    // In the order of the options: the standard protocol, when it is there, is nobody's entry.
    return setup.plugins.flatMap(({ tier }, index) => {
      const link = surfaces.links[index];
      return tier === "inline" && link !== undefined ? [link.manifest] : [];
    });
  }

  workerLink(plugin: number): WorkerLink | undefined {
    const link = this.#parts.surfaces.links[plugin];
    return link instanceof WorkerLink ? link : undefined;
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
    const { resident, parked } = this.sessions.counts;
    return {
      sessions: resident,
      parked,
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
      if (!setup.journals) this.#underWay.cancelTurns("The runtime is closing.");
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
    const turn = new ActiveTurn({ sessionId, listening, send });
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
      this.#underWay.find(key)?.cancel(reason);
    } else if (topic === "usage") this.sessions.bill(payload as UsageNote).catch(ignore);
  }
}
