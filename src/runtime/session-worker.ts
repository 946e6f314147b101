import { MessageChannel, type MessagePort } from "node:worker_threads";
import { asTroupeError, completionKeyOf, type Json, messageOf, TroupeError } from "../kernel/index.js";
import type { OperationSpec, SessionHandle, SessionView } from "../plugin/index.js";
import type {
  ActivityNote,
  CancelNote,
  HostToolCall,
  ObservedNote,
  OperationReceipt,
  PluginSetup,
  RelayCall,
  SessionInfo,
  SessionMaking,
  SessionPluginOptions,
  SessionSurface,
  SessionWorkerService,
  SessionWorkerStats,
  TraceEvent,
  TurnCall,
  TurnReply,
  UsageNote,
} from "../session/index.js";
import { runHere } from "../tools/index.js";
import { type CallOptions, Lane, type ServedCall, workerLost } from "../wire/index.js";
import type { ResolvedOptions } from "./options.js";
import { Thread } from "./threads.js";

const PAUSE_MS = 50;
const MAX_FAILED_STARTS = 5;
const CLOSE_GRACE_MS = 5_000;

export interface SessionWorkerParts {
  readonly index: number;
  readonly options: ResolvedOptions;
  /** Made anew for every incarnation: the manifests of isolated plugins may come from a restarted worker. */
  readonly plugins: () => readonly PluginSetup[];
  readonly storePort: () => Promise<MessagePort>;
  /** Opens the hook lanes of a new incarnation. */
  readonly connectPlugins: (worker: SessionWorker) => Promise<void>;
  readonly onActivity: (note: ActivityNote) => void;
  readonly onObserved: (note: ObservedNote) => void;
  /** Answers what sessions ask of other sessions. */
  readonly relay: (call: RelayCall) => Promise<unknown>;
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
  #closed = false;
  /** Turns that wait for the worker, by key. */
  readonly #unsent = new Map<number, { cancelled?: string; listened?: true }>();
  #received = 0;
  restarts = 0;
  /** Resolves when the current lane has closed; everything it carried has arrived by then. */
  #laneClosed: Promise<void> = Promise.resolve();
  /** Ids of the inline plugins, in their order: only the session workers load them. */
  inlinePlugins: readonly string[] = [];

  constructor(parts: SessionWorkerParts) {
    this.index = parts.index;
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
    const { options, index } = this.#parts;
    const thread = new Thread<SessionWorkerService>({ kind: "session", name: `Session worker ${index}` });
    this.#thread = thread;
    const { port1: mainPort, port2: workerPort } = new MessageChannel();
    const lane = this.#newLane(mainPort, thread);
    thread.exited.then(({ error }) => lane.lose(workerLost(thread.name, error)));
    try {
      const storePort = await this.#parts.storePort();
      const { inline } = await thread.caller.to.configure(
        {
          index,
          store: { port: storePort, options: options.store },
          mainPort: workerPort,
          model: options.model,
          plugins: this.#parts.plugins(),
          hostTools: options.hostToolSpecs,
          poolTools: options.poolTools,
          pool: { maxThreads: options.toolThreads },
          hookDispatch: options.hookDispatch,
          config: options.config,
          mailboxLimit: options.mailboxLimit,
          standardProtocol: options.standardProtocol,
          tracing: options.onTrace !== undefined,
          development: options.development,
        },
        { transfer: [storePort, workerPort] },
      );
      this.inlinePlugins = inline.map((manifest) => manifest.id);
      this.#configured = thread;
      await this.#parts.connectPlugins(this);
    } catch (error) {
      lane.lose(workerLost(thread.name, error));
      await thread.terminate();
      throw error;
    }
    if (!lane.lost) this.#lane = lane;
    else if (!this.#closed) throw workerLost(thread.name);
  }

  #newLane(port: MessagePort, thread: Thread<SessionWorkerService>): Lane {
    let closed: () => void = ignore;
    this.#laneClosed = new Promise<void>((resolve) => {
      closed = resolve;
    });
    const lane = new Lane(port, {
      name: thread.name,
      serve: (method, payload, call) =>
        method === "relay" ? this.#parts.relay(payload as RelayCall) : this.#runHostTool(payload as HostToolCall, call),
      onNote: (topic, payload) => {
        if (topic === "activity") this.#parts.onActivity(payload as ActivityNote);
        else if (topic === "trace") this.#trace(payload as TraceEvent);
        else if (topic === "observed") this.#parts.onObserved(payload as ObservedNote);
      },
      onLost: () => {
        closed();
        this.#received += lane.counts.received;
        if (this.#configured === thread) this.#configured = undefined;
        // A lane that never became the worker's is the business of whoever was starting it.
        if (this.#lane !== lane) return;
        this.#lane = undefined;
        if (this.#closed) return;
        this.#ready = this.#restart(thread);
        // Whoever needs the worker finds out; a worker nobody needs may fail in peace.
        this.#ready.catch(ignore);
      },
    });
    return lane;
  }

  turn(call: TurnCall): Promise<TurnReply> {
    if (this.#lane !== undefined) return this.#lane.call<TurnReply>("turn", call);
    return this.#turnWhenReady(call);
  }

  listen(key: number): void {
    const waiting = this.#unsent.get(key);
    if (waiting === undefined) this.#lane?.note("listen", key);
    else waiting.listened = true;
  }

  cancel(key: number, reason: string): void {
    const waiting = this.#unsent.get(key);
    if (waiting === undefined) this.#lane?.note("cancel", [key, reason] satisfies CancelNote);
    else waiting.cancelled = reason;
  }

  /** Usage of a session's child, for its ledger. */
  usage(note: UsageNote): void {
    this.#lane?.note("usage", note);
  }

  async open(sessionId: string, pluginOptions: SessionPluginOptions): Promise<SessionInfo> {
    return (await this.#service()).open({ sessionId, pluginOptions });
  }

  async capture(sessionId: string): Promise<Uint8Array<ArrayBuffer>> {
    return (await (await this.#service()).capture({ sessionId })).snapshot;
  }

  async adopt(sessionId: string, snapshot: Uint8Array<ArrayBuffer>, making: SessionMaking): Promise<SessionHandle> {
    return (await this.#service()).adopt({ sessionId, snapshot, making }, { transfer: [snapshot.buffer] });
  }

  /** A call about a session that needs its place in the mailbox, and so may take as long as the turns before it. */
  async inMailbox<
    M extends "setConfig" | "compact" | "append" | "extend" | "hostCall" | "addInput" | "inputs" | "cancelInput",
  >(
    method: M,
    argument: Parameters<SessionWorkerService[M]>[0],
  ): Promise<Awaited<ReturnType<SessionWorkerService[M]>>> {
    const service = await this.#service();
    const call = service[method] as (
      argument: unknown,
      options: CallOptions,
    ) => Promise<Awaited<ReturnType<SessionWorkerService[M]>>>;
    return call(argument, { deadlineMs: Number.POSITIVE_INFINITY });
  }

  async view(sessionId: string): Promise<SessionView> {
    return (await this.#service()).view({ sessionId });
  }

  async surface(sessionId: string): Promise<SessionSurface> {
    return (await this.#service()).surface({ sessionId });
  }

  async observe(argument: Parameters<SessionWorkerService["observe"]>[0]): Promise<string> {
    return (await this.#service()).observe(argument);
  }

  async unobserve(argument: Parameters<SessionWorkerService["unobserve"]>[0]): Promise<void> {
    return (await this.#service()).unobserve(argument);
  }

  async completeTool(argument: Parameters<SessionWorkerService["completeTool"]>[0]): Promise<void> {
    return (await this.#service()).completeTool(argument);
  }

  async releaseIdle(sessionId: string): Promise<void> {
    return (await this.#service()).releaseIdle({ sessionId });
  }

  /** No deadline but the caller's own: a task may be long. Cancelling one is asking it, and so it is still waited for. */
  async operate(
    request: Parameters<SessionWorkerService["operate"]>[0],
    signal: AbortSignal | undefined,
  ): Promise<OperationReceipt> {
    const options = { signal, deadlineMs: Number.POSITIVE_INFINITY, cooperative: request.kind === "task" };
    return (await this.#service()).operate(request, options);
  }

  async operations(): Promise<readonly OperationSpec[]> {
    return (await this.#service()).operations(undefined);
  }

  async release(sessionId: string): Promise<void> {
    return (await this.#service()).release({ sessionId });
  }

  async stats(): Promise<SessionWorkerStats> {
    return (await this.#service()).stats(undefined);
  }

  async failPlugin(argument: { plugin: number; code: string; message: string }): Promise<void> {
    await this.#configured?.caller.to.failPlugin(argument);
  }

  /** Ends the thread as a crash would. */
  async kill(): Promise<void> {
    await this.#thread?.terminate();
  }

  /** Cancels what still runs, stores the sessions and stops the thread. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#ready.catch(ignore);
    const thread = this.#thread;
    if (thread === undefined) return;
    const closed = this.#laneClosed;
    await thread.caller.to.shutdown({ drainMs: 0 }, { deadlineMs: CLOSE_GRACE_MS }).then(
      // The lane's last answers may arrive behind the word that everything is done: it ends after them.
      () => closed,
      ignore,
    );
    await thread.terminate();
  }

  async #restart(dead: Thread<SessionWorkerService>): Promise<void> {
    await dead.terminate();
    for (let failures = 1; ; failures++) {
      await new Promise<void>((resolve) => setTimeout(resolve, PAUSE_MS * failures));
      if (this.#closed) return;
      try {
        await this.start();
        this.restarts++;
        return;
      } catch (error) {
        if (failures < MAX_FAILED_STARTS) continue;
        const cause = asTroupeError(error, "worker_failed");
        throw new TroupeError(
          "worker_failed",
          `Session worker ${this.index} could not be restarted: ${cause.message}`,
          { cause },
        );
      }
    }
  }

  /** A turn asked for while the worker restarts: it is sent, and if need be cancelled, as soon as there is a lane. */
  async #turnWhenReady(call: TurnCall): Promise<TurnReply> {
    const [key] = call;
    const unsent: { cancelled?: string; listened?: true } = {};
    this.#unsent.set(key, unsent);
    try {
      await this.#whenReady();
    } finally {
      this.#unsent.delete(key);
    }
    const result = this.#liveLane().call<TurnReply>("turn", call);
    if (unsent.listened) this.listen(key);
    if (unsent.cancelled !== undefined) this.cancel(key, unsent.cancelled);
    return result;
  }

  async #whenReady(): Promise<void> {
    await this.#ready;
    if (this.#closed) throw new TroupeError("closed", "The runtime is closed.");
  }

  async #service(): Promise<Thread<SessionWorkerService>["caller"]["to"]> {
    await this.#whenReady();
    return this.#caller();
  }

  #caller(): Thread<SessionWorkerService>["caller"]["to"] {
    if (this.#thread === undefined) throw workerLost(`Session worker ${this.index}`);
    return this.#thread.caller.to;
  }

  #liveLane(): Lane {
    if (this.#lane === undefined) throw workerLost(`Session worker ${this.index}`);
    return this.#lane;
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

function ignore(): void {}
