import { MessageChannel, type MessagePort } from "node:worker_threads";
import { deferred, ignore, persist } from "../../async/index.js";
import { asTroupeError, completionKeyOf, type Json, messageOf, TroupeError } from "../../kernel/index.js";
import {
  type ActivityNote,
  type AnswerOf,
  type ArgumentOf,
  type HostToolCall,
  type Inspected,
  type ObservedNote,
  type PluginSetup,
  type RelayCall,
  SESSION_CALLS,
  type SessionMethod,
  type SessionWorkerService,
  type TraceEvent,
  type WantedNote,
} from "../../session/index.js";
import { runHere } from "../../tools/index.js";
import { type Caller, type CallOptions, Lane, type ServedCall, workerLost } from "../../wire/index.js";
import type { ResolvedOptions } from "../options/index.js";
import type { StoreWorker } from "./store-worker.js";
import { Thread } from "./threads.js";

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
}

interface SessionWorkerParts {
  readonly index: number;
  readonly options: ResolvedOptions;
  readonly events: CrewEvents;
  /** Made anew for every incarnation: the manifests of isolated plugins may come from a restarted worker. */
  readonly plugins: () => readonly PluginSetup[];
  /** Tools' schemas that some session worker has checked, as JSON; the others need not. */
  readonly usableSchemas: Set<string>;
  readonly storePort: (replaces: string | undefined) => ReturnType<StoreWorker["connect"]>;
  /** A session of this worker waits for a lane to a plugin. */
  readonly onPluginCalled: (plugin: number, worker: SessionWorker) => void;
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
  restarts = 0;
  /** How many threads its place has had before this one's, because they were full. */
  recycled = 0;
  /** Where sessions find it: its index, but for one that is about to leave its place or to take it. */
  place: number;
  /** Resolves when the current lane has closed; everything it carried has arrived by then. */
  #laneClosed: Promise<void> = Promise.resolve();
  /** Ids of the inline plugins, in their order: only the session workers load them. */
  inlinePlugins: readonly string[] = [];

  constructor(parts: SessionWorkerParts) {
    this.index = parts.index;
    this.place = parts.index;
    this.#parts = parts;
  }

  get threadId(): number {
    return this.#thread?.threadId ?? -1;
  }

  /** Messages the main thread got from this worker: on the lane, and by Comlink. */
  get messages(): { lane: number; control: number } {
    return { lane: this.#received + (this.#lane?.counts.received ?? 0), control: this.#thread?.messages ?? 0 };
  }

  /** The thread that is configured and can be given hook lanes; undefined while there is none. */
  get configured(): Thread<SessionWorkerService> | undefined {
    return this.#configured;
  }

  /** Starts and configures the thread; throws what is wrong with the configuration. */
  async start(): Promise<void> {
    const { options, index, usableSchemas } = this.#parts;
    const { clock } = options;
    const thread = new Thread<SessionWorkerService>({ kind: "session", name: `Session worker ${index}`, clock });
    this.#thread = thread;
    const { port1: mainPort, port2: workerPort } = new MessageChannel();
    const lane = this.#newLane(mainPort, thread);
    thread.exited.then(({ error }) => lane.lose(workerLost(thread.name, error)));
    try {
      const { port: storePort, owner } = await this.#parts.storePort(this.#owner);
      this.#owner = owner;
      const configured = await thread.caller.to.configure(
        {
          ...options.worker,
          store: { port: storePort, options: options.store },
          mainPort: workerPort,
          plugins: this.#parts.plugins(),
          usableSchemas: [...usableSchemas],
        },
        { transfer: [storePort, workerPort] },
      );
      this.inlinePlugins = configured.inline.map((manifest) => manifest.id);
      for (const schema of configured.usableSchemas) usableSchemas.add(schema);
      this.#configured = thread;
      await this.#parts.events.onStarted(this);
    } catch (error) {
      lane.lose(workerLost(thread.name, error));
      await thread.terminate();
      throw error;
    }
    if (!lane.lost) this.#lane = lane;
    else if (!this.#closing.signal.aborted) throw workerLost(thread.name);
  }

  #newLane(port: MessagePort, thread: Thread<SessionWorkerService>): Lane {
    const { promise, resolve: closed } = deferred();
    this.#laneClosed = promise;
    const { events, options } = this.#parts;
    const lane = new Lane(port, {
      name: thread.name,
      clock: options.clock,
      serve: (method, payload, call) =>
        method === "relay" ? events.relay(payload as RelayCall) : this.#runHostTool(payload as HostToolCall, call),
      onNote: (topic, payload) => {
        if (topic === "activity") events.onActivity(payload as ActivityNote);
        else if (topic === "trace") this.#trace(payload as TraceEvent);
        else if (topic === "observed") events.onObserved(payload as ObservedNote);
        else if (topic === "inspected") events.onInspected(payload as Inspected);
        else if (topic === "full") events.onFull(this);
        else if (topic === "wanted") this.#parts.onPluginCalled(payload as WantedNote, this);
      },
      onLost: () => {
        closed();
        this.#received += lane.counts.received;
        if (this.#configured === thread) this.#configured = undefined;
        // A lane that never became the worker's is the business of whoever was starting it.
        if (this.#lane !== lane) return;
        this.#lane = undefined;
        if (this.#closing.signal.aborted) return;
        this.#ready = this.#restart(thread);
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
      return (await this.#caller()).call<AnswerOf<M>>(method, argument, options);
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
    if (this.#closing.signal.aborted) throw new TroupeError("closed", "The runtime is closed.");
  }

  #lost(): never {
    throw workerLost(`Session worker ${this.index}`);
  }

  /** The host's own function: what it throws is its own affair, but not this worker's end. */
  #trace(event: TraceEvent): void {
    try {
      this.#parts.options.onTrace?.(event);
    } catch (error) {
      process.emitWarning(`onTrace threw: ${messageOf(error)}`);
    }
  }

  #runHostTool([name, args, facts]: HostToolCall, call: ServedCall): unknown {
    const tool = this.#parts.options.hostTools.get(name);
    if (tool === undefined) throw new TroupeError("tool_unavailable", `The host has no tool ${name}.`);
    return runHere(tool, args as Json, {
      ...facts,
      get completionKey() {
        return completionKeyOf(facts.sessionId, facts.turnId, facts.callId);
      },
      get signal() {
        return call.signal;
      },
    });
  }
}
