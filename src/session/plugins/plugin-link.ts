import type { RecordableHistogram } from "node:perf_hooks";
import type { Clock } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import type {
  Contributions,
  HookKind,
  HostInterface,
  HostMethod,
  OperationSpec,
  PluginManifest,
  Protocol,
} from "../../plugin/index.js";
import type { HomeContext } from "../../tools/index.js";
import { hookPhase, type PhaseProbe, recordMs } from "../../trace/index.js";
import { contentHash } from "../../wire/index.js";
import type { Captured, InstanceInit } from "../plugin-thread/index.js";
import { describeCaptured } from "../plugin-thread/index.js";
import type { AskingCall } from "./asking-call.js";

interface PluginSlotParts {
  readonly number: number;
  readonly component?: string;
  readonly captured?: Uint8Array | undefined;
  readonly init?: InstanceInit | undefined;
}

/**
 * A session's share of one plugin: what was captured last and whether the plugin may have changed it since. Captured
 * state is a component of the session, dirty until a commit has it.
 */
export class PluginSlot {
  readonly sessionId: string;
  /** Of the component that keeps the state. */
  readonly name: string;
  /** Names this slot on the hook lane; never given twice on a worker. */
  readonly number: number;
  /** For a plugin that registers. */
  readonly init: InstanceInit | undefined;
  /** The plugin keeps something for this session. One that registers says so when it has. */
  stateful = true;
  /** The plugin was called since the last capture. */
  touched = false;
  /** An answer with state was lost: what the plugin captured last is not what is here. */
  resync = false;
  /** Seen in development: state changed under the same revision. Told with the next commit. */
  unrevised = false;
  /** How often the plugin's instance was made anew: what an earlier one still captures is not this session's state. */
  lives = 0;
  #captured: Uint8Array | undefined;
  #dirty = false;

  constructor(sessionId: string, { number, component = "", captured, init }: PluginSlotParts) {
    this.sessionId = sessionId;
    this.number = number;
    this.name = component;
    this.init = init;
    this.#captured = captured;
  }

  /** Last captured state; what a replaced plugin worker restores from. */
  get captured(): Uint8Array | undefined {
    return this.#captured;
  }

  /** Captured but not yet committed. */
  get dirty(): boolean {
    return this.#dirty;
  }

  encode(): Uint8Array | null {
    return this.#captured ?? null;
  }

  written(state: Uint8Array | null): void {
    if (this.#captured === state) this.#dirty = false;
  }

  keep({ state, unrevised }: Captured): void {
    if (unrevised === true) this.unrevised = true;
    if (state === undefined) return;
    this.#captured = state;
    this.#dirty = true;
  }

  /** State from elsewhere, as if it had been captured now. */
  adopt(state: Uint8Array): void {
    this.keep({ state });
    this.renewed();
  }

  /** The plugin's next instance goes on from what was captured last. */
  renewed(): void {
    this.lives++;
    this.touched = false;
    this.resync = false;
  }
}

/** Which of a plugin's hooks. */
export interface HookRef {
  readonly kind: HookKind;
  readonly nth: number;
}

export interface HookOptions {
  /** Capture the state with the answer. */
  readonly capture?: boolean;
  readonly signal?: AbortSignal;
}

export interface OperationCall {
  readonly spec: OperationSpec;
  readonly args: unknown;
  /** The session it is about. */
  readonly sessionId: string | undefined;
  readonly signal: AbortSignal;
}

/** Answers host services; checks what was granted and which sessions may be seen. */
export type HostGate = (call: {
  readonly sessionId: string;
  readonly pluginId: string;
  readonly granted: readonly HostInterface[];
  readonly method: HostMethod;
  readonly args: readonly unknown[];
  readonly signal: AbortSignal | undefined;
  /** The call it is asked in, when that may be made again. */
  readonly asking: AskingCall | undefined;
}) => Promise<unknown>;

export function hostCallOver(pluginId: string, method: string): TroupeError {
  return new TroupeError("host_call_over", `Plugin ${pluginId} asked for ${method} after its call ended.`);
}

/** One plugin as a session worker sees it, whatever thread runs it. */
export interface PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: HookProbes;
  /** May a child do without it? */
  readonly optionalInChildren: boolean;
  /** What a plugin that registers contributes to this session; throws what its register() threw. */
  register(slot: PluginSlot): Promise<Contributions>;
  /** The pieces of a protocol; only an inline plugin has any. */
  protocol(slot: PluginSlot): Protocol | undefined;
  hook(slot: PluginSlot, hook: HookRef, facts: object, options: HookOptions): unknown;
  tool(slot: PluginSlot, toolId: string, args: unknown, context: HomeContext): unknown;
  operation(slot: PluginSlot, call: OperationCall): Promise<unknown>;
  capture(slot: PluginSlot): Promise<void>;
  /** The revision the plugin counts itself, as it is now; undefined when asking would take a hop or it counts none. */
  revisionNow(slot: PluginSlot): bigint | undefined;
  /** The plugin goes on from this state instead of its own. */
  restoreState(slot: PluginSlot, state: Uint8Array): void;
  /** The plugin's instance is made anew with the next call, from what was captured last. */
  renew(slot: PluginSlot): void;
  closeSession(slot: PluginSlot): void;
  close(): void;
}

/** The histograms of a plugin's hooks, made when a kind is first called. */
export class HookProbes {
  readonly #pluginId: string;
  readonly #probe: PhaseProbe;
  readonly #clock: Clock;
  readonly #byKind = new Map<HookKind, RecordableHistogram>();

  constructor(pluginId: string, { probe, clock }: { readonly probe: PhaseProbe; readonly clock: Clock }) {
    this.#pluginId = pluginId;
    this.#probe = probe;
    this.#clock = clock;
  }

  now(): number {
    return this.#clock.now();
  }

  /** Counts a call that began at `started`. */
  record(kind: HookKind, started: number): void {
    recordMs(this.#of(kind), this.#clock.now() - started);
  }

  #of(kind: HookKind): RecordableHistogram {
    let histogram = this.#byKind.get(kind);
    if (histogram === undefined) {
      histogram = this.#probe.phase(hookPhase(kind, this.#pluginId));
      this.#byKind.set(kind, histogram);
    }
    return histogram;
  }
}

/**
 * How often a plugin's state has changed. A plugin that counts says so itself; of a declared state it is taken from the
 * content, so that it is the same for the same state in every life of a session.
 */
export function revisionOf(captured: Uint8Array | undefined): bigint {
  if (captured === undefined) return 0n;
  const { revision } = describeCaptured(captured);
  return revision ?? Buffer.from(contentHash(captured), "base64url").readBigUInt64LE(0);
}
