import type { RecordableHistogram } from "node:perf_hooks";
import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import type { Contributions, HookKind, OperationSpec, PluginManifest, Protocol } from "../../plugin/index.js";
import type { HomeContext } from "../../tools/index.js";
import { hookPhase, type PhaseProbe, recordMs } from "../../trace/index.js";
import type { Captured, HookRef, HostAccess, InstanceInit } from "../plugin-thread/index.js";

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
  /** What the plugin registered for this session alone, when it is on a thread: no manifest knows it. */
  registered: Contributions | undefined;
  /** The plugin keeps something for this session. One that registers says so when it has. */
  stateful = true;
  /** The plugin was called since the last capture. */
  touched = false;
  /** A capture that is under way: until it is over, what was captured last is not what the plugin has. */
  capturing: Promise<unknown> | undefined;
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

  /** The plugin's next instance goes on from what was captured last, or from state as if that had been captured now. */
  renewed(state?: Uint8Array): void {
    this.keep({ state });
    this.lives++;
    this.touched = false;
    this.resync = false;
  }
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

/** A host service that is asked for, in the name of a plugin's call. */
export interface HostRequest extends Omit<Parameters<HostAccess>[0], "waiting"> {
  readonly sessionId: string;
  readonly pluginId: string;
  /** The call it is asked in, when that may be made again. */
  readonly asking?: AskingCall | undefined;
}

/** Answers host services; checks what was granted and which sessions may be seen. */
export type HostGate = (call: HostRequest) => Promise<unknown>;

/** A host service that changes something, as it is asked for. */
export type AskedService = Pick<HostRequest, "method" | "args" | "signal">;

/**
 * A plugin's call that asks for host services, and the answers it was given. It is the same object for as long as the
 * call may be made again: made again, the call is answered as it was, by the order in which it asks.
 */
export class AskingCall {
  /** Names the call within its turn, in every life of the turn alike; undefined for a call that no turn repeats. */
  readonly place: string | undefined;
  readonly #answers: { readonly asked: AskedService; readonly answer: Promise<unknown> }[] = [];
  #next = 0;
  /** The call does not repeat itself: nothing more is done for it. */
  #mismatch: TroupeError | undefined;
  #name: string | undefined;

  constructor(place: string | undefined) {
    this.place = place;
  }

  /** The call is made again, from its beginning. */
  again(): void {
    this.#next = 0;
  }

  /** Tells the call from others at the same place; `number` says how many of them asked before it. */
  name(number: (place: string) => number): string {
    const place = this.place ?? "";
    this.#name ??= `${place}:${number(place)}`;
    return this.#name;
  }

  /** The answer the call was given at this point when it was made before, or else what `answer` gives; `nth` counts from 0. */
  ask(asked: AskedService, answer: (nth: number) => Promise<unknown>): Promise<unknown> {
    if (this.#mismatch !== undefined) return Promise.reject(this.#mismatch);
    const nth = this.#next++;
    const known = this.#answers[nth];
    if (known !== undefined && isSame(known.asked, asked)) return known.answer;
    const given = known === undefined ? answer(nth) : Promise.reject(this.#askedOtherwise(nth, known.asked, asked));
    if (known === undefined) this.#answers[nth] = { asked, answer: given };
    given.catch((error: unknown) => {
      if (asked.signal?.aborted) delete this.#answers[nth];
      else if (error instanceof TroupeError && error.code === "replay_mismatch") this.#mismatch = error;
    });
    return given;
  }

  #askedOtherwise(nth: number, before: AskedService, now: AskedService): TroupeError {
    const what = before.method === now.method ? `${now.method} with other arguments` : `${now.method}`;
    return new TroupeError(
      "replay_mismatch",
      `${this.place ?? "The call"} is not repeating itself: when it was made before, service ${nth + 1} was ${before.method}, now it asks for ${what}.`,
      { details: { nth, recorded: before.method, given: now.method } },
    );
  }
}

function isSame(a: AskedService, b: AskedService): boolean {
  return a.method === b.method && isDeepStrictEqual(a.args, b.args);
}

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
  protocol?(slot: PluginSlot): Protocol | undefined;
  hook(slot: PluginSlot, hook: HookRef, facts: object, options: HookOptions): unknown;
  tool(slot: PluginSlot, toolId: string, args: unknown, context: HomeContext): unknown;
  operation(slot: PluginSlot, call: OperationCall): Promise<unknown>;
  capture(slot: PluginSlot): Promise<void>;
  /** The revision the plugin counts itself, as it is now; undefined when it counts none. Only where asking takes no hop. */
  revisionNow?(slot: PluginSlot): bigint | undefined;
  /** The plugin's instance is made anew with the next call, from what was captured last or from this state. */
  renew(slot: PluginSlot, state?: Uint8Array): void;
  closeSession(slot: PluginSlot): void;
  close(): void;
}

/** What every link is made with. */
export interface LinkOptions {
  readonly clock: Clock;
  readonly deadlineMs: number;
  readonly probe: PhaseProbe;
  readonly host: HostGate;
  readonly optionalInChildren: boolean;
}

type HookProbes = ReturnType<typeof hookProbes>;

/** Measures a plugin's hooks. The histogram of a kind is made when it is first called. */
export function hookProbes(pluginId: string, { probe, clock }: Pick<LinkOptions, "probe" | "clock">) {
  const byKind = new Map<HookKind, RecordableHistogram>();
  return {
    now: () => clock.now(),
    /** Counts a call that began at `started`. */
    record(kind: HookKind, started: number): void {
      const histogram = byKind.get(kind) ?? probe.phase(hookPhase(kind, pluginId));
      byKind.set(kind, histogram);
      recordMs(histogram, clock.now() - started);
    },
  };
}
