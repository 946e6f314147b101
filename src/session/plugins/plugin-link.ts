import type { RecordableHistogram } from "node:perf_hooks";
import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../async/index.js";
import { canonicalJson, fingerprint, type Json, replayMismatched, TroupeError } from "../../kernel/index.js";
import type {
  Contributions,
  HookKind,
  OperationSpec,
  PluginManifest,
  Protocol,
  SharedFacts,
} from "../../plugin/index.js";
import type { HomeContext, NoteTaker } from "../../tools/index.js";
import { type EventSink, hookPhase, type PhaseProbe, recordMs } from "../../trace/index.js";
import { encodeState } from "../../wire/index.js";
import type { FailurePolicies } from "../calls/index.js";
import type { Captured, HookRef, HostAccess, InstanceInit, ToolFacts } from "../plugin-thread/index.js";
import { checkCaptured } from "./check-captured.js";
import type { PluginPolicy } from "./failure-policy.js";

interface PluginSlotParts {
  readonly number: number;
  readonly component?: string;
  readonly captured?: Uint8Array | undefined;
  readonly init?: InstanceInit | undefined;
  readonly facts?: SharedFacts | undefined;
  /** Of the plugin as it was loaded: what its thread captures must be of this version. */
  readonly version?: string;
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
  /** For a plugin with shared state: what its key is made of. */
  readonly facts: SharedFacts | undefined;
  /** What the plugin registered for this session alone, when it is on a thread: no manifest knows it. */
  registered: Contributions | undefined;
  /** The plugin keeps something for this session. One that registers says so when it has. */
  stateful = true;
  /** The plugin was called since the last capture. */
  touched = false;
  /** A capture that is under way: until it is over, what was captured last is not what the plugin has. */
  capturing: Promise<unknown> | undefined;
  /** A hook missed its deadline since the last capture: the next one is not waited for as long again. */
  late = false;
  /** An answer with state was lost: what the plugin captured last is not what is here. */
  resync = false;
  /** Seen in development: state changed under the same revision. Told with the next commit. */
  unrevised = false;
  /** How often the plugin's instance was made anew: what an earlier one still captures is not this session's state. */
  lives = 0;
  /** The state as the plugin last answered with it, when that is not what was captured last. */
  latest: Uint8Array | undefined;
  readonly #version: string | undefined;
  #captured: Uint8Array | undefined;
  #dirty = false;

  constructor(sessionId: string, { number, component = "", captured, init, facts, version }: PluginSlotParts) {
    this.sessionId = sessionId;
    this.number = number;
    this.name = component;
    this.init = init;
    this.facts = facts;
    this.#version = version;
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

  /** Keeps what a plugin's thread captured, once it was copied and looked at; otherwise throws `plugin_capture_failed`. */
  keep(foreign: Captured): void {
    const version = this.#version;
    this.keepOwn(checkCaptured(foreign, { plugin: this.name, ...(version !== undefined && { version }) }));
  }

  /** Keeps what was captured on this thread, by our own code. */
  keepOwn({ state, unrevised }: Captured): void {
    if (unrevised === true) this.unrevised = true;
    if (state === undefined) return;
    this.latest = undefined;
    this.#captured = state;
    this.#dirty = true;
  }

  /** The plugin answered, and this is its state then; nothing is to be stored for it yet. */
  follow({ state }: Captured): void {
    if (state === undefined) return;
    const isKept = this.#captured !== undefined && Buffer.compare(this.#captured, state) === 0;
    this.latest = isKept ? undefined : state;
  }

  /** The same, of a declared state as its host wrote it down. */
  followDeclared(state: unknown): void {
    try {
      this.follow({ state: encodeState({ version: this.#version ?? "", state }, `The state of ${this.name}`) });
    } catch {
      // The session goes on from what was captured last.
    }
  }

  /** The plugin's state is what it last answered with. */
  keepLatest(): void {
    if (this.latest !== undefined) this.keep({ state: this.latest });
  }

  /** The plugin's next instance goes on from what it last answered with, or from state as if that had been captured now. */
  renewed(state?: Uint8Array): void {
    this.keepOwn({ state });
    this.lives++;
    this.touched = false;
    this.resync = false;
  }
}

export interface HookOptions {
  /** Capture the state with the answer. */
  readonly capture?: boolean;
  /** Before the first model call of a turn that is written down: its plugin's last hook then captures the state. */
  readonly preparing?: boolean;
  readonly signal?: AbortSignal;
  /** What the facts have for single plugins, by plugin id: hooks with different ones do not cross together. */
  readonly inputs?: Readonly<Record<string, unknown>> | undefined;
}

export interface OperationCall {
  readonly spec: OperationSpec;
  readonly args: unknown;
  /** The session it is about. */
  readonly sessionId: string | undefined;
  readonly signal: AbortSignal;
}

/** An event of the outside world, by the trigger it came through. */
export interface TriggeredEvent {
  readonly source: string;
  readonly payload: Json;
}

/** A host service that is asked for, in the name of a plugin's call. */
export interface HostRequest extends Omit<Parameters<HostAccess>[0], "waiting"> {
  readonly sessionId: string;
  readonly pluginId: string;
  /** The call it is asked in, when that may be made again. */
  readonly asking?: AskingCall | undefined;
  /** The tool's call it is asked in. */
  readonly tool?: AskingTool | undefined;
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
  /** Of a change that is made in steps: without an answer until it is stored. */
  readonly #answers: { readonly asked: AskedService; answer: Promise<unknown> | undefined }[] = [];
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
    if (known?.answer !== undefined && isSame(known.asked, asked)) return known.answer;
    const given = known === undefined ? answer(nth) : Promise.reject(this.#askedOtherwise(nth, known.asked, asked));
    if (known === undefined) this.#answers[nth] = { asked, answer: given };
    given.catch((error: unknown) => {
      if (asked.signal?.aborted) delete this.#answers[nth];
      else if (error instanceof TroupeError && error.code === "replay_mismatch") this.#mismatch = error;
    });
    return given;
  }

  /**
   * A change that is made in steps takes its place. `before`: what it came to when the call was made before; undefined when
   * it came to nothing.
   */
  begin(asked: AskedService): { readonly nth: number; readonly before: Promise<Uint8Array | undefined> | undefined } {
    if (this.#mismatch !== undefined) throw this.#mismatch;
    const nth = this.#next++;
    const known = this.#answers[nth];
    if (known === undefined) {
      this.#answers[nth] = { asked, answer: undefined };
      return { nth, before: undefined };
    }
    if (!isSame(known.asked, asked)) {
      this.#mismatch = this.#askedOtherwise(nth, known.asked, asked);
      throw this.#mismatch;
    }
    // One that was still being stored when the call's thread died may come to something yet.
    return { nth, before: known.answer?.then((answer) => answer as Uint8Array).catch(() => undefined) };
  }

  /** Was this change begun, and has it come to nothing so far? */
  isBegun(nth: number, asked: Pick<AskedService, "method" | "args">): boolean {
    const begun = this.#answers[nth];
    return begun !== undefined && begun.answer === undefined && isSame(begun.asked, asked);
  }

  /** What a change that was begun comes to; one that fails came to nothing. */
  answer(nth: number, answer: Promise<unknown>): void {
    const begun = this.#answers[nth];
    if (begun === undefined) return;
    begun.answer = answer;
    answer.catch(() => {
      if (begun.answer === answer) begun.answer = undefined;
    });
  }

  #askedOtherwise(nth: number, before: AskedService, now: AskedService): TroupeError {
    const what = before.method === now.method ? `${now.method} with other arguments` : `${now.method}`;
    return replayMismatched(
      `${this.place ?? "The call"} is not repeating itself: when it was made before, service ${nth + 1} was ${before.method}, now it asks for ${what}.`,
      { nth, recorded: before.method, given: now.method },
    );
  }
}

/**
 * A tool's call that asks for host services. It is run again when a crash interrupted it, and need not repeat itself: what it
 * asks for is named by what that is, and by how often it has asked for the same.
 */
export class AskingTool {
  readonly #call: string;
  readonly #times = new Map<string, number>();

  constructor({ callId, attempt = 1 }: Pick<ToolFacts, "callId" | "attempt">) {
    this.#call = `${callId}:${attempt}`;
  }

  /** Undefined: nobody could ask for the same again. */
  name({ method, args }: Pick<AskedService, "method" | "args">): string | undefined {
    let what: string;
    try {
      what = `${method}:${fingerprint(canonicalJson((TO_PROCESS.includes(method) ? args[0] : args) as Json)).toString(36)}`;
    } catch {
      // No JSON: whoever is asked refuses it.
      return undefined;
    }
    const times = this.#times.get(what) ?? 0;
    this.#times.set(what, times + 1);
    return `tool:${this.#call}:${what}:${times}`;
  }
}

/** Named by the process and their order: what a process has been given it is not given again. */
const TO_PROCESS: readonly string[] = ["writeToProcess", "signalProcess"];

function isSame(a: Pick<AskedService, "method" | "args">, b: Pick<AskedService, "method" | "args">): boolean {
  return a.method === b.method && isDeepStrictEqual(a.args, b.args);
}

/** `who`: the plugin, or the plugins that share a thread. */
export function hostCallOver(who: string, method: string): TroupeError {
  return new TroupeError("host_call_over", `${who} asked for ${method} after its call ended.`);
}

/** One plugin as a session worker sees it, whatever thread runs it. */
export interface PluginLink {
  readonly manifest: PluginManifest;
  readonly probes: HookProbes;
  /** It runs on the thread of its sessions. */
  readonly isHere?: true;
  /** May a child do without it? */
  readonly optionalInChildren: boolean;
  /** What becomes of its hooks that fail. */
  readonly policy: PluginPolicy;
  /** What a plugin that registers contributes to this session; throws what its register() threw. */
  register(slot: PluginSlot): Promise<Contributions>;
  /** The pieces of a protocol; only an inline plugin has any. */
  protocol?(slot: PluginSlot): Protocol | undefined;
  hook(slot: PluginSlot, hook: HookRef, facts: object, options: HookOptions): unknown;
  tool(slot: PluginSlot, toolId: string, args: unknown, context: HomeContext): unknown;
  operation(slot: PluginSlot, call: OperationCall): Promise<unknown>;
  /** What is wrong with the payload of one of its triggers; undefined: it fits. The slot is of no session. */
  payload(slot: PluginSlot, event: TriggeredEvent): Promise<string | undefined>;
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
  /** Told what tools say before they answer; default: nobody is. */
  readonly noted?: NoteTaker;
  readonly optionalInChildren: boolean;
  readonly onFailure?: FailurePolicies;
  /** Sessions go on without it when it is given up. Default false. */
  readonly optional?: boolean;
  /** Undefined: nobody listens. */
  readonly events?: EventSink | undefined;
}

type HookProbes = ReturnType<typeof hookProbes>;

/** Measures a plugin's hooks. The histogram of a kind is made when it is first called. */
export function hookProbes(pluginId: string, { probe, clock }: Pick<LinkOptions, "probe" | "clock">) {
  const byKind = new Map<HookKind, RecordableHistogram>();
  /** Counts a call that took so long. */
  const add = (kind: HookKind, ms: number): void => {
    const histogram = byKind.get(kind) ?? probe.phase(hookPhase(kind, pluginId));
    byKind.set(kind, histogram);
    recordMs(histogram, ms);
  };
  return {
    now: () => clock.now(),
    add,
    /** Counts a call that failed. */
    failed: (kind: HookKind, timeout: boolean): void => probe.failed(hookPhase(kind, pluginId), timeout),
    /** Counts a call that began at `started`. */
    record: (kind: HookKind, started: number): void => add(kind, clock.now() - started),
  };
}
