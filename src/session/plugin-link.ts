import type { RecordableHistogram } from "node:perf_hooks";
import { aborted, TroupeError } from "../kernel/index.js";
import type { HookKind, LoadedPlugin, PluginManifest, ToolContext } from "../plugin/index.js";
import { runHere } from "../tools/index.js";
import { hookPhase, type PhaseProbe } from "../trace/index.js";
import { Deadlines, Lane, type LaneCallOptions, ServedCall, type UnstartedCall, workerLost } from "../wire/index.js";
import { packHook } from "./hook-facts.js";
import { PluginInstance } from "./plugin-instance.js";
import {
  type CaptureCall,
  HOOK_LANE_METHODS,
  type HookAnswer,
  type OpenInstance,
  type OperationRun,
  type ToolRun,
} from "./plugin-protocol.js";
import type { PluginLane } from "./protocol.js";

/** A session's share of one plugin: what was captured last and whether the plugin may have changed it since. */
export interface PluginSlot {
  readonly sessionId: string;
  /** Names this slot on the hook lane; never given twice in a thread. */
  readonly number: number;
  /** Last captured state; what a replaced plugin worker restores from. */
  captured: Uint8Array | undefined;
  /** Captured but not yet committed. */
  unsaved: boolean;
  /** The plugin was called since the last capture. */
  touched: boolean;
  /** An answer with state was lost: what the plugin captured last is not what is here. */
  resync: boolean;
}

export interface HookOptions {
  /** Capture the state with the answer. */
  readonly capture?: boolean;
  readonly signal?: AbortSignal;
}

export interface OperationCall {
  readonly name: string;
  readonly args: unknown;
  /** The session it is about. */
  readonly sessionId: string | undefined;
  readonly signal: AbortSignal;
}

/** One plugin as a session worker sees it, whatever thread runs it. */
export interface PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: ReadonlyMap<HookKind, RecordableHistogram>;
  hook(slot: PluginSlot, kind: HookKind, facts: object, options: HookOptions): unknown;
  tool(slot: PluginSlot, toolName: string, args: unknown, context: ToolContext): unknown;
  operation(slot: PluginSlot, call: OperationCall): Promise<unknown>;
  capture(slot: PluginSlot): Promise<void>;
  closeSession(slot: PluginSlot): void;
  close(): void;
}

let nextSlot = 1;

export function newSlot(sessionId: string, captured: Uint8Array | undefined): PluginSlot {
  return { sessionId, number: nextSlot++, captured, unsaved: false, touched: false, resync: false };
}

/** Ask for what changed, or for all of it when an earlier answer was lost. */
function captureMode(slot: PluginSlot): 1 | 2 {
  return slot.resync ? 2 : 1;
}

function probesOf(manifest: PluginManifest, probe: PhaseProbe): Map<HookKind, RecordableHistogram> {
  return new Map(manifest.hooks.map((kind) => [kind, probe.phase(hookPhase(kind, manifest.id))]));
}

function keep(slot: PluginSlot, state: Uint8Array | undefined): void {
  if (state === undefined) return;
  slot.captured = state;
  slot.unsaved = true;
}

/** How long a call waits for the plugin's thread to be replaced. */
const REPLACEMENT_MS = 10_000;

export interface WorkerLinkOptions {
  readonly manifest: PluginManifest;
  readonly deadlineMs: number;
  readonly probe: PhaseProbe;
  /** A call missed its deadline: somebody should look whether the thread still answers. */
  readonly onSuspect: (incarnation: number) => void;
}

/** A plugin on its own thread. Survives the thread: calls made while it is replaced wait for the next one. */
export class WorkerLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: ReadonlyMap<HookKind, RecordableHistogram>;
  /** The deadline of every hook call. */
  readonly #within: Required<Omit<LaneCallOptions, "signal">>;
  readonly #deadlines = new Deadlines();
  #lane: Lane | undefined;
  #incarnation = 0;
  readonly #past = { sent: 0, received: 0 };
  /** Sessions whose instance exists in the current incarnation. */
  readonly #opened = new Set<number>();
  /** The slots of live sessions, by number: a call that must be made again names only that. */
  readonly #slots = new Map<number, PluginSlot>();
  #waiting: { go: () => void; fail: (error: TroupeError) => void }[] = [];
  #closed: TroupeError | undefined;

  constructor(options: WorkerLinkOptions) {
    this.manifest = options.manifest;
    this.probes = probesOf(options.manifest, options.probe);
    this.#within = {
      deadlineMs: options.deadlineMs,
      deadlineCode: "hook_timeout",
      onDeadline: () => options.onSuspect(this.#incarnation),
    };
  }

  /** Messages on this hook lane, over all incarnations. */
  get messages(): { sent: number; received: number } {
    const { sent, received } = this.#lane?.counts ?? { sent: 0, received: 0 };
    return { sent: this.#past.sent + sent, received: this.#past.received + received };
  }

  /** The lane to a new incarnation of the plugin's worker. */
  attach({ port, incarnation, stage }: Pick<PluginLane, "port" | "incarnation" | "stage">): void {
    this.#lane?.lose(workerLost(`Plugin ${this.manifest.id}`));
    this.#opened.clear();
    this.#incarnation = incarnation;
    const lane = new Lane(port, {
      name: `Plugin ${this.manifest.id}`,
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
    for (const call of this.#waiting.splice(0)) call.go();
  }

  /** The plugin will not come back: every call fails with `error`. */
  fail(error: TroupeError): void {
    this.#closed = error;
    this.#lane?.lose(error);
    for (const { fail } of this.#waiting.splice(0)) fail(error);
  }

  hook(slot: PluginSlot, kind: HookKind, facts: object, options: HookOptions): Promise<unknown> {
    const capture = options.capture ?? false;
    const { deadlineMs, deadlineCode, onDeadline } = this.#within;
    const answer = this.#call<unknown>(
      slot,
      "hook",
      packHook(slot.number, kind, capture ? captureMode(slot) : 0, facts),
      {
        deadlineMs,
        deadlineCode,
        onDeadline,
        signal: options.signal,
      },
    );
    return capture ? this.#keeping(slot, answer as Promise<HookAnswer>) : answer;
  }

  tool(
    slot: PluginSlot,
    toolName: string,
    args: unknown,
    { sessionId, turnId, callId, signal }: ToolContext,
  ): Promise<unknown> {
    // The tool's own timeout is kept by the dispatch, which aborts the signal.
    const run: ToolRun = [slot.number, toolName, args, { sessionId, turnId, callId }];
    return this.#call(slot, "tool", run, { signal });
  }

  operation(slot: PluginSlot, { name, args, sessionId, signal }: OperationCall): Promise<unknown> {
    // No deadline: a task may be long; its caller has a signal.
    return this.#call(slot, "operation", [slot.number, name, args, sessionId] satisfies OperationRun, { signal });
  }

  async capture(slot: PluginSlot): Promise<void> {
    if (!this.#opened.has(slot.number)) {
      slot.touched = false;
      return;
    }
    const ask: CaptureCall = [slot.number, captureMode(slot)];
    const answer = this.#call<Uint8Array | undefined>(slot, "capture", ask, this.#within);
    await this.#keeping(
      slot,
      answer.then((state) => ({ value: undefined, captured: true, state })),
    );
  }

  /** The slot is clean from when it was asked: a hook called meanwhile touches it again. */
  async #keeping(slot: PluginSlot, answer: Promise<HookAnswer>): Promise<unknown> {
    slot.touched = false;
    try {
      const { value, captured, state } = await answer;
      if (captured) {
        keep(slot, state);
        slot.resync = false;
      } else slot.touched = true;
      return value;
    } catch (error) {
      // The plugin may have captured and its answer been lost: next time it must not say that nothing changed.
      slot.touched = true;
      slot.resync = true;
      throw error;
    }
  }

  closeSession(slot: PluginSlot): void {
    this.#slots.delete(slot.number);
    if (this.#opened.delete(slot.number)) this.#lane?.note("close", slot.number);
  }

  close(): void {
    this.#deadlines.clear();
    this.fail(new TroupeError("closed", "The runtime is closed."));
  }

  #call<T>(
    slot: PluginSlot,
    method: (typeof HOOK_LANE_METHODS)[number],
    payload: unknown,
    options: LaneCallOptions,
  ): Promise<T> {
    this.#slots.set(slot.number, slot);
    slot.touched = true;
    if (this.#lane !== undefined) return this.#send<T>(this.#lane, slot, method, payload, options);
    return new Promise<T>((resolve, reject) => {
      this.#wait({ method, payload, options, resolve: resolve as (value: unknown) => void, reject });
    });
  }

  #send<T>(lane: Lane, slot: PluginSlot, method: string, payload: unknown, options: LaneCallOptions): Promise<T> {
    if (!this.#opened.has(slot.number)) {
      // No round trip: the note and the call leave in one message, in this order.
      this.#opened.add(slot.number);
      lane.note("open", [slot.number, slot.sessionId, slot.captured] satisfies OpenInstance);
    }
    return lane.call<T>(method, payload, options);
  }

  /** Keeps a call until there is a thread to make it on. Waiting for one is not the hook's time. */
  #wait({ method, payload, options, resolve, reject }: UnstartedCall): void {
    if (this.#closed !== undefined) {
      reject(this.#closed);
      return;
    }
    const slot = this.#slots.get((payload as readonly number[])[0] as number);
    const { signal } = options;
    const leave = (error: TroupeError) => {
      this.#waiting = this.#waiting.filter((other) => other !== call);
      this.#deadlines.cancel(deadline);
      reject(error);
    };
    const onAbort = () => leave(aborted(signal as AbortSignal));
    const call = {
      go: () => {
        this.#deadlines.cancel(deadline);
        signal?.removeEventListener("abort", onAbort);
        if (this.#lane === undefined || slot === undefined) reject(workerLost(`Plugin ${this.manifest.id}`));
        else this.#send(this.#lane, slot, method, payload, options).then(resolve, reject);
      },
      fail: reject,
    };
    const deadline = this.#deadlines.add(REPLACEMENT_MS, () => leave(workerLost(`Plugin ${this.manifest.id}`)));
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#waiting.push(call);
  }
}

export interface InlineLinkOptions {
  readonly plugin: LoadedPlugin;
  readonly deadlineMs: number;
  readonly probe: PhaseProbe;
}

/** A trusted plugin in the session worker itself: no hop, and no protection from its loops. */
export class InlineLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: ReadonlyMap<HookKind, RecordableHistogram>;
  readonly #plugin: LoadedPlugin;
  readonly #deadlineMs: number;
  readonly #deadlines = new Deadlines();
  readonly #instances = new Map<string, PluginInstance>();

  constructor(options: InlineLinkOptions) {
    this.manifest = options.plugin.manifest;
    this.probes = probesOf(this.manifest, options.probe);
    this.#plugin = options.plugin;
    this.#deadlineMs = options.deadlineMs;
  }

  hook(slot: PluginSlot, kind: HookKind, facts: object, options: HookOptions): unknown {
    const instance = this.#instance(slot);
    slot.touched = true;
    const waiting = new ServedCall();
    const value = instance.hook(kind, (context) => Object.assign(context, facts), waiting);
    // State that is at hand is captured by the commit itself; `options.capture` saves a hop that is not there.
    return value instanceof Promise ? this.#within(value, waiting, kind, options.signal) : value;
  }

  tool(slot: PluginSlot, toolName: string, args: unknown, tool: ToolContext): unknown {
    const definition = this.#plugin.tools.get(toolName);
    if (definition === undefined)
      throw new TroupeError("tool_unavailable", `Plugin ${this.manifest.id} has no tool ${toolName}.`);
    slot.touched = true;
    const { sessionId, turnId, callId } = tool;
    // The context itself is what is waiting: its signal is made only when the tool looks at it.
    const context = this.#instance(slot).toolContext({ sessionId, turnId, callId }, tool);
    return runHere(definition as never, args as never, context as never);
  }

  operation(slot: PluginSlot, { name, args, sessionId, signal }: OperationCall): Promise<unknown> {
    slot.touched = true;
    return this.#instance(slot).operation(name, args, sessionId, { signal });
  }

  async capture(slot: PluginSlot): Promise<void> {
    keep(slot, this.#instances.get(slot.sessionId)?.capture());
    slot.touched = false;
  }

  closeSession({ sessionId }: PluginSlot): void {
    this.#instances.delete(sessionId);
  }

  close(): void {
    this.#deadlines.clear();
    this.#instances.clear();
  }

  #instance(slot: PluginSlot): PluginInstance {
    let instance = this.#instances.get(slot.sessionId);
    if (instance === undefined) {
      instance = new PluginInstance(this.#plugin, slot.sessionId, slot.captured);
      this.#instances.set(slot.sessionId, instance);
    }
    return instance;
  }

  #within<T>(promise: Promise<T>, waiting: ServedCall, kind: HookKind, signal: AbortSignal | undefined): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const giveUp = (error: TroupeError) => {
        waiting.cancel();
        end(reject)(error);
      };
      const onAbort = () => giveUp(aborted(signal as AbortSignal));
      const end =
        <V>(settle: (value: V) => void) =>
        (value: V) => {
          this.#deadlines.cancel(deadline);
          signal?.removeEventListener("abort", onAbort);
          settle(value);
        };
      const deadline = this.#deadlines.add(this.#deadlineMs, () => {
        const message = `Plugin ${this.manifest.id}: ${kind} did not answer within ${this.#deadlineMs} ms.`;
        giveUp(new TroupeError("hook_timeout", message, { retryable: true }));
      });
      signal?.addEventListener("abort", onAbort, { once: true });
      promise.then(end(resolve), end(reject));
    });
  }
}
