import type { MessagePort } from "node:worker_threads";
import { ignore, onAbort } from "../../async/index.js";
import { aborted, TroupeError } from "../../kernel/index.js";
import {
  type Contributions,
  HOOK_HOSTS,
  type HostInterface,
  NO_HOST,
  OPERATION_HOSTS,
  operationDeadline,
  operationTimeout,
  type PluginManifest,
  TOOL_HOOK_HOST,
} from "../../plugin/index.js";
import type { HomeContext } from "../../tools/index.js";
import {
  Deadlines,
  Lane,
  type LaneCallOptions,
  type Served,
  serve,
  type UnstartedCall,
  workerLost,
} from "../../wire/index.js";
import type { PluginLane } from "../calls/index.js";
import {
  HOOK_LANE_METHODS,
  type HookAnswer,
  type HookCall,
  type HookLane,
  type HookRef,
  type HostService,
  hookOf,
  type OpenInstance,
  packHook,
  placeOf,
  unpackFacts,
} from "../plugin-thread/index.js";
import {
  AskingCall,
  type HookOptions,
  hookProbes,
  hostCallOver,
  type LinkOptions,
  type OperationCall,
  type PluginLink,
  type PluginSlot,
} from "./plugin-link.js";

/** How long a call waits for the plugin's thread to be replaced. */
const REPLACEMENT_MS = 10_000;

interface WorkerLinkOptions extends LinkOptions {
  readonly manifest: PluginManifest;
  /** A call waits for a lane. */
  readonly onWanted: () => void;
}

/** A plugin on its own thread. Survives the thread: calls made while it is replaced wait for the next one. */
export class WorkerLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: PluginLink["probes"];
  readonly optionalInChildren: boolean;
  readonly #options: WorkerLinkOptions;
  #hostPort: MessagePort | undefined;
  /** The deadline of every hook call. */
  readonly #within: Required<Pick<LaneCallOptions, "deadlineMs" | "deadlineCode">>;
  readonly #deadlines: Deadlines;
  #lane: Lane | undefined;
  readonly #past = { sent: 0, received: 0 };
  /** Sessions whose instance exists in the current incarnation. */
  readonly #opened = new Set<number>();
  /** The slots of live sessions, by number: a call that must be made again names only that. */
  readonly #slots = new Map<number, PluginSlot>();
  /** Hook calls that asked for host services, by what they were sent: that is the same when they are made again. */
  readonly #asking = new WeakMap<object, AskingCall>();
  #waiting: { go: () => void; fail: (error: TroupeError) => void }[] = [];
  #closed: TroupeError | undefined;

  constructor(options: WorkerLinkOptions) {
    this.manifest = options.manifest;
    this.probes = hookProbes(options.manifest.id, options);
    this.optionalInChildren = options.optionalInChildren;
    this.#options = options;
    this.#deadlines = new Deadlines(options.clock);
    this.#within = { deadlineMs: options.deadlineMs, deadlineCode: "hook_timeout" };
  }

  /** Messages on this hook lane, over all incarnations. */
  get messages(): { sent: number; received: number } {
    const { sent, received } = this.#lane?.counts ?? { sent: 0, received: 0 };
    return { sent: this.#past.sent + sent, received: this.#past.received + received };
  }

  /** The lane to a new incarnation of the plugin's worker. */
  attach({ port, hostPort, stage }: Pick<PluginLane, "port" | "hostPort" | "stage">): void {
    this.#lane?.lose(workerLost(`Plugin ${this.manifest.id}`));
    this.#hostPort?.close();
    this.#hostPort = hostPort;
    this.#opened.clear();
    const lane = new Lane(port, {
      name: `Plugin ${this.manifest.id}`,
      clock: this.#options.clock,
      methods: HOOK_LANE_METHODS,
      stage,
      // What the dead thread had not begun waits for the next one: only the calls it was at are lost.
      onUnstarted: (call) => this.#wait(call),
      onLost: () => {
        this.#past.sent += lane.counts.sent;
        this.#past.received += lane.counts.received;
        if (this.#lane === lane) this.#lane = undefined;
      },
    });
    this.#lane = lane;
    this.#serveHost(hostPort, lane);
    for (const call of this.#waiting.splice(0)) call.go();
  }

  /** The plugin will not come back: every call fails with `error`. */
  fail(error: TroupeError): void {
    this.#closed = error;
    this.#lane?.lose(error);
    for (const { fail } of this.#waiting.splice(0)) fail(error);
  }

  /** Host services, asked in the name of a call that is still under way: what it was granted is looked up here. */
  #serveHost(port: MessagePort, lane: Lane): void {
    const service = {
      host: async ({ call, method, args }, signal: AbortSignal) => {
        const waiting = lane.waiting(call);
        const slot = waiting && this.#slots.get((waiting.payload as readonly number[])[0] as number);
        if (waiting === undefined || slot === undefined) throw hostCallOver(this.manifest.id, method);
        const granted = this.#granted(waiting.method, waiting.payload);
        const asking = waiting.method === "hook" ? this.#askingIn(slot, waiting.payload as HookCall) : undefined;
        const { sessionId } = slot;
        return this.#options.host({ sessionId, pluginId: this.manifest.id, granted, method, args, signal, asking });
      },
    } satisfies Served<HostService>;
    serve(port, service);
    port.on("messageerror", () => lane.lose(workerLost(`Plugin ${this.manifest.id}`)));
  }

  #askingIn({ sessionId }: PluginSlot, payload: HookCall): AskingCall {
    let asking = this.#asking.get(payload);
    if (asking === undefined) {
      const hook = hookOf(payload[1]);
      const facts = {};
      unpackFacts(facts, hook.kind, sessionId, payload);
      asking = new AskingCall(placeOf(this.manifest.id, hook, facts));
      this.#asking.set(payload, asking);
    }
    return asking;
  }

  #granted(method: string, payload: unknown): readonly HostInterface[] {
    switch (method as keyof HookLane) {
      case "hook":
        return HOOK_HOSTS[hookOf((payload as HookCall)[1]).kind];
      case "tool":
        return TOOL_HOOK_HOST;
      case "operation": {
        const [session, name] = payload as HookLane["operation"]["call"];
        const { operations } = this.#slots.get(session)?.registered ?? this.manifest.contributions;
        const kind = operations.find((spec) => spec.name === name)?.kind;
        return kind === undefined ? NO_HOST : OPERATION_HOSTS[kind];
      }
      default:
        return NO_HOST;
    }
  }

  async register(slot: PluginSlot): Promise<Contributions> {
    const { stateful, contributions } = await this.#call(slot, "register", [slot.number], this.#within);
    // Registering changes nothing that would have to be captured.
    slot.touched = false;
    slot.stateful = stateful;
    slot.registered = contributions;
    return contributions;
  }

  hook(slot: PluginSlot, hook: HookRef, facts: object, { capture = false, signal }: HookOptions): Promise<unknown> {
    const payload = packHook(slot.number, hook, capture ? captureMode(slot) : 0, facts);
    const { deadlineMs, deadlineCode } = this.#within;
    const answer = this.#call(slot, "hook", payload, { deadlineMs, deadlineCode, signal });
    return capture ? this.#keeping(slot, answer as Promise<HookAnswer>) : answer;
  }

  tool(
    slot: PluginSlot,
    toolId: string,
    args: unknown,
    { sessionId, turnId, callId, signal, cancelGraceMs: graceMs }: HomeContext,
  ): Promise<unknown> {
    // The tool's own timeout is kept by the dispatch, which aborts the signal.
    return this.#call(slot, "tool", [slot.number, toolId, args, { sessionId, turnId, callId }], { signal, graceMs });
  }

  operation(slot: PluginSlot, { spec, args, sessionId, signal }: OperationCall): Promise<unknown> {
    const run = [slot.number, spec.name, args, sessionId] as const;
    const deadlineMs = operationDeadline(spec, this.#within.deadlineMs);
    // Its caller's signal asks it to stop; what it did by then counts.
    if (deadlineMs === undefined) return this.#call(slot, "operation", run, { signal, cooperative: true });
    const onExpired = () => {
      this.renew(slot);
      return operationTimeout(spec, { pluginId: this.manifest.id, deadlineMs });
    };
    return this.#call(slot, "operation", run, { signal, cooperative: true, deadlineMs, onExpired });
  }

  async capture(slot: PluginSlot): Promise<void> {
    if (!this.#opened.has(slot.number)) {
      slot.touched = false;
      return;
    }
    const asked = this.#call(slot, "capture", [slot.number, captureMode(slot)], this.#within);
    const answer = asked.then((captured) => ({ value: undefined, captured }));
    await this.#keeping(slot, answer);
  }

  /** The slot is clean from when it was asked: a hook called meanwhile touches it again. */
  async #keeping(slot: PluginSlot, answer: Promise<HookAnswer>): Promise<unknown> {
    slot.touched = false;
    slot.capturing = answer;
    const { lives } = slot;
    try {
      const { value, captured } = await answer;
      if (lives !== slot.lives) return value;
      if (captured !== undefined) {
        slot.keep(captured);
        slot.resync = false;
      } else slot.touched = true;
      return value;
    } catch (error) {
      // The plugin may have captured and its answer been lost: next time it must not say that nothing changed.
      slot.touched = true;
      slot.resync = true;
      throw error;
    } finally {
      if (slot.capturing === answer) slot.capturing = undefined;
    }
  }

  renew(slot: PluginSlot, state?: Uint8Array): void {
    if (this.#opened.delete(slot.number)) this.#lane?.note("close", slot.number);
    slot.renewed(state);
  }

  closeSession(slot: PluginSlot): void {
    this.#slots.delete(slot.number);
    this.renew(slot);
  }

  close(): void {
    this.#deadlines.clear();
    this.#hostPort?.close();
    this.fail(new TroupeError("closed", "The runtime is closed."));
  }

  #call<M extends keyof HookLane>(
    slot: PluginSlot,
    method: M,
    payload: HookLane[M]["call"],
    options: LaneCallOptions,
  ): Promise<HookLane[M]["answer"]> {
    this.#slots.set(slot.number, slot);
    slot.touched = true;
    if (this.#lane !== undefined) return this.#send(this.#lane, slot, method, payload, options);
    return new Promise((resolve, reject) =>
      this.#wait({ method, payload, options, resolve: resolve as never, reject }),
    );
  }

  #send<T>(lane: Lane, slot: PluginSlot, method: string, payload: unknown, options: LaneCallOptions): Promise<T> {
    if (!this.#opened.has(slot.number)) {
      // No round trip: the note and the call leave in one message, in this order.
      this.#opened.add(slot.number);
      lane.note("open", [slot.number, slot.sessionId, slot.captured, slot.init] satisfies OpenInstance);
    }
    return lane.call<T>(method, payload, options);
  }

  /**
   * As {@link #send}, for a cooperative call that was asked to stop before it could be made. The request follows in a message
   * of its own: code that only listens for it has begun to by then.
   */
  #sendAborted<T>(
    lane: Lane,
    slot: PluginSlot,
    method: string,
    payload: unknown,
    options: LaneCallOptions,
  ): Promise<T> {
    const stop = new AbortController();
    const answer = this.#send<T>(lane, slot, method, payload, { ...options, signal: stop.signal });
    this.#options.clock.soon(() => stop.abort());
    return answer;
  }

  /** Keeps a call until there is a thread to make it on. Waiting for one is not the hook's time. */
  #wait({ method, payload, options, resolve, reject }: UnstartedCall): void {
    const slot = this.#slots.get((payload as readonly number[])[0] as number);
    const { signal } = options;
    const refused = this.#closed ?? (signal?.aborted ? aborted(signal) : undefined);
    if (refused !== undefined) {
      reject(refused);
      return;
    }
    const leave = () => {
      this.#deadlines.cancel(deadline);
      letGo();
    };
    const fail = (error: TroupeError) => {
      leave();
      this.#waiting = this.#waiting.filter((other) => other !== call);
      reject(error);
    };
    const call = {
      go: () => {
        leave();
        this.#asking.get(payload as object)?.again();
        if (this.#lane === undefined || slot === undefined) reject(workerLost(`Plugin ${this.manifest.id}`));
        else if (signal?.aborted) this.#sendAborted(this.#lane, slot, method, payload, options).then(resolve, reject);
        else this.#send(this.#lane, slot, method, payload, options).then(resolve, reject);
      },
      fail,
    };
    const deadline = this.#deadlines.add(REPLACEMENT_MS, () => fail(workerLost(`Plugin ${this.manifest.id}`)));
    // Of a cooperative call an abort is a request: it is made with it, as if the abort had come a moment later.
    const letGo = options.cooperative ? ignore : onAbort(signal, () => fail(aborted(signal as AbortSignal)));
    this.#waiting.push(call);
    if (this.#waiting.length === 1) this.#options.onWanted();
  }
}

/** Ask for what changed, or for all of it when an earlier answer was lost. */
function captureMode(slot: PluginSlot): 1 | 2 {
  return slot.resync ? 2 : 1;
}
