import { MessageChannel, type MessagePort } from "node:worker_threads";
import { deferred, ignore, persist } from "../../async/index.js";
import { asTroupeError, runtimeClosed, TroupeError } from "../../kernel/index.js";
import type { JobSpec } from "../../plugin/index.js";
import {
  type ActivityNote,
  type AgentsSetup,
  type AnswerOf,
  type ArgumentOf,
  type CrashedNote,
  type EventNote,
  type FloatingNote,
  type GroupSetup,
  type HostDownNote,
  type HostToolCall,
  type Inspected,
  type ObservedNote,
  type PluginSetup,
  type RelayCall,
  SESSION_CALLS,
  type SecretsCall,
  type SessionMethod,
  type SessionWorkerService,
  type TraceEvent,
  type WantedNote,
} from "../../session/index.js";
import { type EventHub, eventError } from "../../trace/index.js";
import {
  type Caller,
  type CallOptions,
  decodeError,
  Lane,
  newNativeGate,
  newStage,
  workerLost,
} from "../../wire/index.js";
import type { ResolvedOptions } from "../options/index.js";

import { Asked, UnexplainedDeaths, type Watchdog } from "../watch/index.js";
import { hostNotes, runHostTool, secretsOf, tellTrace } from "./host-functions.js";
import { crashed, lossOf, tellFloating, tellWorkerLost } from "./session-worker-loss.js";
import type { StoreWorker } from "./store-worker.js";
import { NO_DEADLINE_MS, Thread } from "./threads.js";

const PAUSE_MS = 50;
const MAX_FAILED_STARTS = 5;
const CLOSE_GRACE_MS = 5_000;

/** What session workers tell and ask the main thread. */
export interface CrewEvents {
  readonly onActivity: (note: ActivityNote) => void;
  readonly onObserved: (note: ObservedNote) => void;
  readonly onInspected: (inspected: Inspected) => void;
  /** Answers what sessions ask of other sessions. */
  readonly relay: (call: RelayCall) => Promise<unknown>;
  /** A session worker's heap stays full. */
  readonly onFull: (worker: SessionWorker) => void;
  /** A worker has a new thread, and can be asked for its sessions. */
  readonly onStarted: (worker: SessionWorker) => Promise<void>;
  /** Its store died: nothing can be asked any more. */
  readonly onStoreLost: (error: TroupeError) => void;
  /** Takes events; undefined: nobody listens. */
  readonly hub: EventHub | undefined;
}

interface SessionWorkerParts {
  readonly index: number;
  readonly options: ResolvedOptions;
  readonly events: CrewEvents;
  /** Made anew for every incarnation: the manifests of isolated plugins may come from a restarted worker. */
  readonly plugins: () => readonly PluginSetup[];
  /** Tools' schemas that some session worker has checked, as JSON; the others need not. */
  readonly usableSchemas: Set<string>;
  /** The same for all of a runtime. */
  readonly runtimeId: () => string;
  readonly storePort: (replaces: string | undefined) => ReturnType<StoreWorker["connect"]>;
  readonly groups: () => readonly GroupSetup[];
  /** As they are registered now. */
  readonly agents: () => AgentsSetup;
  readonly watchdog: Watchdog;
  /** A session of this worker waits for a lane to a plugin host. */
  readonly onHostWanted: (host: WantedNote, worker: SessionWorker) => void;
  /** This worker has lost a lane to a plugin host, or hears nothing on it. */
  readonly onHostDown: (note: HostDownNote, worker: SessionWorker) => void;
  /** Its thread was just configured. */
  readonly onConfigured: (worker: SessionWorker) => Promise<void>;
}

/** One session worker as the main thread holds it. When its thread dies it is started again; sessions reopen on demand. */
export class SessionWorker {
  readonly index: number;
  readonly #parts: SessionWorkerParts;
  #thread: Thread<SessionWorkerService> | undefined;
  #lane: Lane | undefined;
  #configured: Thread<SessionWorkerService> | undefined;
  /** Pending while the worker is being (re)started. */
  #ready: Promise<void> = Promise.resolve();
  readonly #closing = new AbortController();
  /** The name its last thread owns sessions by. */
  #owner: string | undefined;
  #received = 0;
  /** Its thread is ended as an operator or a test would. */
  #killed = false;
  /** Of its current thread. */
  #asked = new Asked();
  readonly #deaths: UnexplainedDeaths;
  /** Its threads died too often: there will be no other. */
  #givenUp: TroupeError | undefined;
  restarts = 0;
  /** How many threads its place has had before this one's, because they were full. */
  recycled = 0;
  /** Where sessions find it: its index, but for one that is about to leave its place or to take it. */
  place: number;
  /** Resolves when the current lane has closed; everything it carried has arrived by then. */
  #laneClosed: Promise<void> = Promise.resolve();
  /** Ids of the inline plugins, in their order: only the session workers load them. */
  inlinePlugins: readonly string[] = [];
  /** The jobs of those that have some. */
  inlineJobs: ReadonlyMap<string, readonly JobSpec[]> = new Map();

  constructor(parts: SessionWorkerParts) {
    this.index = parts.index;
    this.place = parts.index;
    this.#parts = parts;
    this.#deaths = new UnexplainedDeaths(parts.options.clock, `Session worker ${parts.index}`);
  }

  get givenUp(): boolean {
    return this.#givenUp !== undefined;
  }

  get threadId(): number {
    return this.#thread?.threadId ?? -1;
  }

  /** Messages the main thread got from this worker: on the lane, and by Comlink. */
  get messages(): { lane: number; control: number } {
    return { lane: this.#received + (this.#lane?.counts.received ?? 0), control: this.#thread?.messages ?? 0 };
  }

  /** The thread that is configured and can be given hook lanes; undefined while there is none. */
  /** Its sessions that wait for the tenant's budget ask again. One that is being started knows no tenant yet. */
  async tenantChanged(tenant: string): Promise<void> {
    await this.#configured?.caller.to.tenantChanged({ tenant }).catch(ignore);
  }

  get configured(): Thread<SessionWorkerService> | undefined {
    return this.#configured;
  }

  /** Starts and configures the thread; throws what is wrong with the configuration. */
  async start(): Promise<void> {
    const { options, index, usableSchemas } = this.#parts;
    const { clock } = options;
    // It reads a store on disk by itself, and LMDB takes the process with it when its thread is ended in the middle.
    const gate = "path" in options.store ? newNativeGate() : undefined;
    const thread = new Thread<SessionWorkerService>({
      kind: "session",
      name: `Session worker ${index}`,
      clock,
      gate,
      env: options.threadEnv,
      ...(options.sessionHeapMb !== undefined && {
        resourceLimits: { maxOldGenerationSizeMb: options.sessionHeapMb },
      }),
    });
    this.#thread = thread;
    this.#asked = new Asked();
    const { port1: mainPort, port2: workerPort } = new MessageChannel();
    const lane = this.#newLane(mainPort, thread);
    void thread.exited.then((exit) => lane.lose(lossOf(thread.name, exit)));
    try {
      const { port: storePort, owner } = await this.#parts.storePort(this.#owner);
      this.#owner = owner;
      const configured = await thread.caller.to.configure(
        {
          ...options.worker,
          store: { port: storePort, options: options.store, gate },
          mainPort: workerPort,
          runtimeId: this.#parts.runtimeId(),
          plugins: this.#parts.plugins(),
          agents: this.#parts.agents(),
          groups: this.#parts.groups(),
          usableSchemas: [...usableSchemas],
        },
        { transfer: [storePort, workerPort], deadlineMs: options.configureMs },
      );
      this.inlinePlugins = configured.inline.map((manifest) => manifest.id);
      this.inlineJobs = new Map(configured.inline.map(({ id, jobs = [] }) => [id, jobs]));
      for (const schema of configured.usableSchemas) usableSchemas.add(schema);
      this.#configured = thread;
      this.#watch(thread, lane, configured.tid);
      await this.#parts.onConfigured(this);
      await this.#parts.events.onStarted(this);
    } catch (error) {
      lane.lose(workerLost(thread.name, undefined, { cause: error }));
      await thread.terminate();
      throw error;
    }
    if (!lane.lost) this.#lane = lane;
    else if (!this.#closing.signal.aborted) throw workerLost(thread.name);
  }

  /** What runs on a session worker is trusted and may be wrong: a model, an inline plugin, a pattern of a schema. */
  #watch(thread: Thread<SessionWorkerService>, lane: Lane, tid: number | undefined): void {
    const { watchdog, options } = this.#parts;
    const blockedMs = options.sessionBlockedMs;
    const unwatch = watchdog.watch({
      // Its calls take turns by themselves; only its event loop is asked for.
      stage: newStage(),
      tid,
      blockedMs,
      busyShare: () => thread.busyShare(),
      ping: () => thread.uncounted(thread.caller.to.ping(undefined, { deadlineMs: NO_DEADLINE_MS })),
      onBlocked: () => {
        const how = `was blocked for ${blockedMs} ms by something that runs on it (a model, an inline plugin or a schema), so its thread was replaced`;
        lane.lose(workerLost(thread.name, how, { details: { reason: "blocked", blockedMs } }));
      },
    });
    void thread.exited.then(unwatch);
  }

  #newLane(port: MessagePort, thread: Thread<SessionWorkerService>): Lane {
    const { promise, resolve: closed } = deferred();
    this.#laneClosed = promise;
    const { events, options } = this.#parts;
    const notes = hostNotes(options, () => lane);
    const lane: Lane = new Lane(port, {
      name: thread.name,
      clock: options.clock,
      serve: (method, payload, call) => {
        if (method === "relay") return events.relay(payload as RelayCall);
        if (method === "secrets") return secretsOf(options, payload as SecretsCall);
        return runHostTool(options, payload as HostToolCall, call, notes);
      },
      onNote: (topic, payload) => {
        if (topic === "activity") events.onActivity(payload as ActivityNote);
        else if (topic === "trace") tellTrace(options, payload as TraceEvent);
        else if (topic === "observed") events.onObserved(payload as ObservedNote);
        else if (topic === "inspected") events.onInspected(payload as Inspected);
        else if (topic === "unasked") this.#asked.unasked = true;
        else if (topic === "full") events.onFull(this);
        else if (topic === "wanted") this.#parts.onHostWanted(payload as WantedNote, this);
        else if (topic === "hostDown") this.#parts.onHostDown(payload as HostDownNote, this);
        else if (topic === "floating") this.#floated(payload as FloatingNote);
        else if (topic === "event") events.hub?.receive({ thread: thread.name, ...(payload as EventNote) });
        else if (topic === "crashed") lane.lose(crashed(thread.name, decodeError(payload as CrashedNote)));
      },
      // How its thread ended is known a moment later. One that lives without its lane does not go on.
      onClosed: () => {
        closed();
        if (this.#closing.signal.aborted) lane.lose(runtimeClosed());
        else void thread.terminate().then(() => lane.lose(workerLost(thread.name)));
      },
      onLost: (error, waiting) => {
        closed();
        this.#received += lane.counts.received;
        if (this.#configured === thread) this.#configured = undefined;
        // A lane that never became the worker's is the business of whoever was starting it.
        if (this.#lane !== lane) return;
        this.#lane = undefined;
        if (this.#closing.signal.aborted) return;
        tellWorkerLost(events.hub, { thread: thread.name, error, asked: this.#killed });
        if (!this.#killed) process.emitWarning(error);
        if (!this.#killed && waiting === 0 && !this.#asked.any) this.#givenUp = this.#deaths.add(error);
        this.#killed = false;
        if (this.#givenUp !== undefined) {
          process.emitWarning(this.#givenUp);
          const { hub } = events;
          hub?.emit({ type: "session_worker_given_up", thread: thread.name, error: eventError(this.#givenUp) });
        }
        this.#ready = this.#givenUp === undefined ? this.#restart(thread) : Promise.reject(this.#givenUp);
        // Whoever needs the worker finds out; a worker nobody needs may fail in peace.
        this.#ready.catch(ignore);
      },
    });
    return lane;
  }

  /** Undefined while the worker restarts. */
  get lane(): Lane | undefined {
    return this.#lane;
  }

  async ready(): Promise<Lane> {
    await this.#whenReady();
    return this.#lane ?? this.#lost();
  }

  get closed(): boolean {
    return this.#closing.signal.aborted;
  }

  get journals(): boolean {
    return this.#parts.options.worker.journals;
  }

  /**
   * A call about a session, by its route. On the lane it may take as long as the turns before it, and leaves a microtask
   * after it was asked for, as a turn does: so they keep their order.
   */
  async ask<M extends SessionMethod>(method: M, argument: ArgumentOf<M>, options?: CallOptions): Promise<AnswerOf<M>> {
    if (SESSION_CALLS[method].route === "control") {
      const caller = await this.#caller();
      return this.#asked.during(caller.call<AnswerOf<M>>(method, argument, options));
    }
    await undefined;
    const lane = this.#lane ?? (await this.ready());
    return lane.call<AnswerOf<M>>(method, argument, options);
  }

  /** For calls about the worker itself. */
  async service(): Promise<Caller<SessionWorkerService>["to"]> {
    return (await this.#caller()).to;
  }

  async #caller(): Promise<Caller<SessionWorkerService>> {
    await this.#whenReady();
    return this.#thread?.caller ?? this.#lost();
  }

  /** Ends the thread as a crash would. */
  async kill(): Promise<void> {
    this.#killed = true;
    await this.#thread?.terminate();
  }

  /** Lets what still runs finish for so long, then cancels it; stores the sessions and stops the thread. */
  async close({ drainMs }: { readonly drainMs: number }): Promise<void> {
    this.#closing.abort();
    await this.#ready.catch(ignore);
    const thread = this.#thread;
    if (thread === undefined) return;
    const closed = this.#laneClosed;
    await thread.caller.to.shutdown({ drainMs }, { deadlineMs: drainMs + CLOSE_GRACE_MS }).then(
      // The lane's last answers may arrive behind the word that everything is done: it ends after them.
      () => closed,
      ignore,
    );
    await thread.terminate();
  }

  /** Starts the thread while others already serve; who asks for this worker waits until it is there. */
  startBehind(): void {
    this.#ready = this.#keepStarting((attempt) => PAUSE_MS * (attempt - 1));
    // Whoever needs the worker finds out; a worker nobody needs may fail in peace.
    this.#ready.catch(ignore);
  }

  async #restart(dead: Thread<SessionWorkerService>): Promise<void> {
    await dead.terminate();
    await this.#keepStarting((attempt) => PAUSE_MS * attempt);
    this.restarts++;
    if (this.closed) return;
    const { hub } = this.#parts.events;
    hub?.emit({ type: "session_worker_replaced", thread: dead.name, restarts: this.restarts });
  }

  async #keepStarting(pauseMs: (attempt: number) => number): Promise<void> {
    const { clock } = this.#parts.options;
    const { signal } = this.#closing;
    try {
      await persist(() => this.start(), { clock, attempts: MAX_FAILED_STARTS, pauseMs, signal });
    } catch (error) {
      if (signal.aborted) return;
      const cause = asTroupeError(error, "worker_failed");
      throw new TroupeError("worker_failed", `Session worker ${this.index} could not be started: ${cause.message}`, {
        cause,
      });
    }
  }

  async #whenReady(): Promise<void> {
    await this.#ready;
    if (this.#closing.signal.aborted) throw runtimeClosed();
  }

  #lost(): never {
    throw workerLost(`Session worker ${this.index}`);
  }

  #floated(note: FloatingNote): void {
    const error = decodeError(note);
    process.emitWarning(error);
    tellFloating(this.#parts.events.hub, error);
  }
}
