import type { RecordableHistogram } from "node:perf_hooks";
import { aborted, TroupeError } from "../kernel/index.js";
import type { HookKind, PluginManifest, ToolContext } from "../plugin/index.js";
import type { PhaseProbe } from "../trace/index.js";
import { Deadlines, Lane, type LaneCallOptions, type UnstartedCall, workerLost } from "../wire/index.js";
import { packHook } from "./hook-facts.js";
import {
  type HookOptions,
  keep,
  type OperationCall,
  type PluginLink,
  type PluginSlot,
  probesOf,
} from "./plugin-link.js";
import {
  type CaptureCall,
  HOOK_LANE_METHODS,
  type HookAnswer,
  type OpenInstance,
  type OperationRun,
  type ToolRun,
} from "./plugin-protocol.js";
import type { PluginLane } from "./protocol.js";

/** How long a call waits for the plugin's thread to be replaced. */
const REPLACEMENT_MS = 10_000;

export interface WorkerLinkOptions {
  readonly manifest: PluginManifest;
  readonly deadlineMs: number;
  readonly probe: PhaseProbe;
}

/** A plugin on its own thread. Survives the thread: calls made while it is replaced wait for the next one. */
export class WorkerLink implements PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: ReadonlyMap<HookKind, RecordableHistogram>;
  /** The deadline of every hook call. */
  readonly #within: Required<Pick<LaneCallOptions, "deadlineMs" | "deadlineCode">>;
  readonly #deadlines = new Deadlines();
  #lane: Lane | undefined;
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
    };
  }

  /** Messages on this hook lane, over all incarnations. */
  get messages(): { sent: number; received: number } {
    const { sent, received } = this.#lane?.counts ?? { sent: 0, received: 0 };
    return { sent: this.#past.sent + sent, received: this.#past.received + received };
  }

  /** The lane to a new incarnation of the plugin's worker. */
  attach({ port, stage }: Pick<PluginLane, "port" | "stage">): void {
    this.#lane?.lose(workerLost(`Plugin ${this.manifest.id}`));
    this.#opened.clear();
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
    const { deadlineMs, deadlineCode } = this.#within;
    const answer = this.#call<unknown>(
      slot,
      "hook",
      packHook(slot.number, kind, capture ? captureMode(slot) : 0, facts),
      {
        deadlineMs,
        deadlineCode,
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
    if (signal?.aborted) {
      reject(aborted(signal));
      return;
    }
    const leave = () => {
      this.#deadlines.cancel(deadline);
      signal?.removeEventListener("abort", onAbort);
    };
    const fail = (error: TroupeError) => {
      leave();
      this.#waiting = this.#waiting.filter((other) => other !== call);
      reject(error);
    };
    const onAbort = () => fail(aborted(signal as AbortSignal));
    const call = {
      go: () => {
        leave();
        if (this.#lane === undefined || slot === undefined) reject(workerLost(`Plugin ${this.manifest.id}`));
        else this.#send(this.#lane, slot, method, payload, options).then(resolve, reject);
      },
      fail,
    };
    const deadline = this.#deadlines.add(REPLACEMENT_MS, () => fail(workerLost(`Plugin ${this.manifest.id}`)));
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#waiting.push(call);
  }
}

/** Ask for what changed, or for all of it when an earlier answer was lost. */
function captureMode(slot: PluginSlot): 1 | 2 {
  return slot.resync ? 2 : 1;
}
