import type { MessagePort } from "node:worker_threads";
import { type Authority, type Json, type ToolCall, turnIdOf } from "../../kernel/index.js";
import type {
  Contributions,
  Extensions,
  HookFacts,
  HookKind,
  HostMethod,
  PluginManifest,
  SharedFacts,
} from "../../plugin/index.js";
import type { Denials, ErrorData } from "../../wire/index.js";
import type { PluginLane } from "../calls/index.js";

/** What the main thread says to a plugin host (Comlink). */
export type PluginHostService = {
  /** Imports the modules of a group's plugins and checks their options, in their order. */
  load(setup: {
    readonly plugins: readonly { readonly module: string; readonly options: unknown }[];
    readonly development: boolean;
    /** Where the thread says which call holds it. */
    readonly stage: Int32Array;
    /** What it may hold outside of its heap. */
    readonly externalMb: number;
    /** What the thread makes sure it is denied before it imports a plugin; undefined: nothing. */
    readonly denials: Denials | undefined;
    /** It runs behind all other threads, from before the first import. */
    readonly background?: boolean;
    /** Its plugins are of several groups and are only asked what they are: one that changes what others stand on fails. */
    readonly describing?: boolean;
  }): Promise<{
    readonly manifests: readonly PluginManifest[];
    /** The thread's id as the operating system has it; undefined where it cannot be known. */
    readonly tid: number | undefined;
  }>;
  /** Opens the hook lane to one session worker, and beside it the port for host services. */
  attach(
    lane: Omit<PluginLane, "group" | "key" | "stage"> & {
      readonly name: string;
      /** Its calls are made one by one. */
      readonly alone: boolean;
    },
  ): Promise<void>;
  /** Opens the lane on which the main thread orders runs of jobs. */
  attachJobs(lane: { readonly port: MessagePort }): Promise<void>;
  /** Answers when the thread's event loop turns. */
  ping(argument: undefined): void;
};

/** What a plugin worker says to a session worker (Comlink): the host services, for a call of the hook lane. */
export type HostService = {
  host(argument: {
    /** The number of the call on the lane in whose name this is asked. */
    readonly call: number;
    /** Which hook of a run it is. */
    readonly at?: number | undefined;
    readonly method: HostMethod;
    readonly args: readonly unknown[];
  }): Promise<unknown>;
};

/**
 * What a session worker says on the hook lane. Calls: see {@link HookLane}. Notes: `open`, `close`, `drop`. A session has a number
 * on the lane, given with `open`, so that its id need not be said with every call.
 */
export const HOOK_LANE_METHODS = [
  "hook",
  "tool",
  "capture",
  "operation",
  "register",
  "run",
  "rest",
  "payload",
] as const;

/** The calls of the hook lane, by method: what is sent, and what is answered. */
export interface HookLane {
  hook: { readonly call: HookCall; readonly answer: unknown };
  tool: {
    readonly call: readonly [session: number, toolId: string, args: unknown, facts: ToolFacts];
    readonly answer: unknown;
  };
  capture: { readonly call: readonly [session: number, mode: CaptureMode]; readonly answer: Captured };
  operation: {
    readonly call: readonly [session: number, name: string, args: unknown, sessionId: string | undefined];
    readonly answer: unknown;
  };
  /** `stateful`: it keeps something for this session. One that does not need never be asked for it. */
  register: {
    readonly call: readonly [session: number];
    readonly answer: { readonly contributions: Contributions; readonly stateful: boolean };
  };
  /** What is wrong with the payload of a trigger, as its plugin sees it; undefined: nothing. Makes no instance. */
  payload: {
    readonly call: readonly [session: number, source: string, payload: Json];
    readonly answer: string | undefined;
  };
  /** Hooks of one kind that several plugins of a group have, one after another. */
  run: { readonly call: RunCall; readonly answer: RunAnswer };
  /** The hook a run came to and did not wait for. A host that knows nothing of the run makes the call anew. */
  rest: {
    readonly call: readonly [session: number, lane: number, run: number, hook: HookCall];
    readonly answer: unknown;
  };
}

/** For each hook its slot's number, its kind's (with which hook of the kind) and whether to capture; then the facts. */
export type RunCall = readonly [hooks: readonly number[], ...facts: unknown[]];
/** Places of one hook in a run's list. */
export const RUN_WIDTH = 3;

/**
 * How far a run came: how long each hook took, in milliseconds; what each answered (0: none answered anything); the error
 * of the hook behind them, if it failed; the run's lane and call if the hook behind them is not done yet. A run ends early where
 * the next hook's facts depend on an answer that only the session worker can read.
 */
export type RunAnswer = readonly [
  times: readonly number[],
  answers: readonly unknown[] | 0,
  failure: ErrorData | 0,
  unfinished: readonly [lane: number, run: number] | 0,
];
export type OpenInstance = readonly [
  session: number,
  /** The plugin's place in its group. */
  member: number,
  sessionId: string,
  captured: Uint8Array | undefined,
  init: InstanceInit | undefined,
  /** Tells this instance's state from that of an earlier one of the same session. */
  life: number,
  /** For a plugin with shared state. */
  facts?: SharedFacts,
];

/** What a plugin that registers is told of a session. Declared plugins need none of it. */
export interface InstanceInit {
  readonly parentSessionId: string | undefined;
  readonly authority: Authority;
  readonly extensions: Extensions;
  /** The session was never stored: there is nothing to restore. */
  readonly fresh: boolean;
}

/** The session's number, the kind's (with which hook of the kind), whether to capture, the facts (see FIELDS). */
export type HookCall = readonly [session: number, kind: number, capture: CaptureMode, ...facts: unknown[]];
/** 0: do not capture. 1: the state if it changed. 2: the state in any case. */
export type CaptureMode = 0 | 1 | 2;

/** What a plugin host tells a session worker on the lane, as a note `state`: a session's state as of its last answer, where the board does not have it. */
export type StateNote = readonly [session: number, life: number, state: Uint8Array];

/** What capturing came to. */
export interface Captured {
  /** Undefined when nothing changed. */
  readonly state: Uint8Array | undefined;
  /** Seen in development: the state changed and its revision did not. */
  readonly unrevised?: boolean;
}

/** Answer of a call that was asked to capture. A state that cannot be captured is not the hook's failure. */
export type HookAnswer = {
  readonly value: unknown;
  readonly captured: Captured | undefined;
};
export interface ToolFacts {
  readonly sessionId: string;
  readonly turnId: string;
  readonly callId: string;
  /** The tool is not to run: what its own code says of the call is wanted. */
  readonly asks?: true;
  /** The first one does not say so. */
  readonly attempt?: number;
}

/**
 * How a hook's facts cross the lane: their values in a fixed order, without the names. Cloning an object between threads
 * costs mostly its keys; the plugin's thread knows them already, and the ids of session and turn too.
 */
const FIELDS: { readonly [K in HookKind]: readonly Exclude<keyof HookFacts[K], "sessionId" | "turnId">[] } = {
  context_transform: [
    "turnIndex",
    "input",
    "pluginInput",
    "messageCount",
    "promptTokens",
    "maxContextTokens",
    "prepared",
  ],
  before_turn: ["turnIndex", "input", "pluginInput", "messageCount", "arrival"],
  tool_catalog_contributor: ["turnIndex", "tools", "hiddenTools", "subagent", "extensions"],
  prompt_contributor: ["turnIndex", "input", "pluginInput", "tools"],
  assistant_stream: ["turnIndex", "step", "blockId", "chunk", "final"],
  assistant_response: ["turnIndex", "step", "response"],
  assistant_prose_projector: ["turnIndex", "step", "text"],
  stream_finished: ["turnIndex", "step", "reason"],
  before_tool_call: ["turnIndex", "call", "argumentProjection"],
  after_tool_call: ["turnIndex", "call", "output", "durationMs"],
  tool_result_projector: ["turnIndex", "call", "output", "durationMs"],
  checkpoint: ["turnIndex", "checkpoint", "step"],
  after_turn: ["turnIndex", "turn"],
  turn_finalized: ["turnIndex", "turn"],
  turn_persisted: ["turnIndex", "turn", "revision"],
  session_restored: ["turnIndex", "fresh"],
  session_config_mutator: ["previous", "current", "config"],
  session_config_changed: ["previous", "current"],
  context_compactor: ["turnIndex", "messageCount", "maxContextTokens", "instructions"],
};

/** Kinds that do not belong to a turn. */
const OUTSIDE_TURNS: readonly HookKind[] = [
  "session_restored",
  "session_config_mutator",
  "session_config_changed",
  "context_compactor",
];

/** Hook kinds by number: a small integer crosses for less than a name. */
const KINDS = Object.keys(FIELDS) as readonly HookKind[];
const KIND_NUMBERS: ReadonlyMap<HookKind, number> = new Map(KINDS.map((kind, number) => [kind, number]));
/** A plugin may have several hooks of a kind; which one it is stands above the kind's number. */
const NTH = 64;

/** Which of a plugin's hooks. */
export interface HookRef {
  readonly kind: HookKind;
  readonly nth: number;
}

/** A plugin's first hook of each kind, by the kind's number; few plugins have a second one. */
const FIRST_HOOKS: readonly HookRef[] = KINDS.map((kind) => ({ kind, nth: 0 }));

/** Which hook a call is for. */
export function hookOf(number: number): HookRef {
  return FIRST_HOOKS[number] ?? { kind: KINDS[number % NTH] as HookKind, nth: Math.trunc(number / NTH) };
}

/** A hook call as it crosses. The kinds around tool calls are written out: they are the hot ones, and a literal is quickest. */
export function packHook(session: number, { kind, nth }: HookRef, capture: CaptureMode, facts: object): HookCall {
  const number = (KIND_NUMBERS.get(kind) as number) + nth * NTH;
  if (kind === "before_tool_call") {
    const { turnIndex, call, argumentProjection } = facts as HookFacts["before_tool_call"];
    const { callId, toolName, args } = call;
    if (argumentProjection === undefined) return [session, number, capture, turnIndex, callId, toolName, args];
    return [session, number, capture, turnIndex, callId, toolName, args, argumentProjection];
  }
  const payload: [number, number, CaptureMode, ...unknown[]] = [session, number, capture];
  packFacts(payload, kind, facts);
  return payload;
}

/** A hook of a run, for its list. */
export function packRunHook(hooks: number[], session: number, { kind, nth }: HookRef, capture: CaptureMode): void {
  hooks.push(session, (KIND_NUMBERS.get(kind) as number) + nth * NTH, capture);
}

/** A run as it crosses: its hooks, and the facts of the first, which those of the others follow from. */
export function packRun(hooks: readonly number[], kind: HookKind, facts: object): RunCall {
  const payload: [readonly number[], ...unknown[]] = [hooks];
  packFacts(payload, kind, facts);
  return payload;
}

function packFacts(payload: unknown[], kind: HookKind, facts: object): void {
  for (const field of FIELDS[kind] as readonly string[]) {
    const value = (facts as Record<string, unknown>)[field];
    // The last of its kind's, and only of hooks that may replace the input.
    if (field === "arrival" && value === undefined) continue;
    if (field !== "call") {
      payload.push(value);
      continue;
    }
    const { callId, toolName, args } = value as ToolCall;
    payload.push(callId, toolName, args);
  }
}

/** Writes a call's facts onto a hook's context; they begin at this place of the payload. */
export function unpackFacts(
  target: object,
  kind: HookKind,
  sessionId: string,
  payload: HookCall | RunCall,
  from = 3,
): void {
  const context = target as Record<string, unknown>;
  context.sessionId = sessionId;
  let at = from;
  if (kind === "before_tool_call") {
    context.turnIndex = payload[at];
    context.call = { callId: payload[at + 1], toolName: payload[at + 2], args: payload[at + 3] };
    context.argumentProjection = payload[at + 4];
    context.turnId = turnIdOf(context.turnIndex as number);
    return;
  }
  for (const field of FIELDS[kind] as readonly string[]) {
    if (field === "call") context.call = { callId: payload[at++], toolName: payload[at++], args: payload[at++] };
    else context[field] = payload[at++];
  }
  if (!OUTSIDE_TURNS.includes(kind)) context.turnId = turnIdOf(context.turnIndex as number);
}

/** Names a hook call within its turn, in every life of the turn alike; undefined for one that no turn repeats. */
export function placeOf(pluginId: string, { kind, nth }: HookRef, facts: object): string | undefined {
  if (OUTSIDE_TURNS.includes(kind) || kind === "turn_persisted") return undefined;
  const {
    call,
    checkpoint,
    step,
    arrival = "turn",
  } = facts as Partial<HookFacts["before_tool_call"] & HookFacts["checkpoint"] & HookFacts["before_turn"]>;
  // About an input that is to wait: no turn asks that again.
  if (arrival !== "turn") return undefined;
  const where = call?.callId ?? (step === undefined ? "" : `${checkpoint ?? "step"}.${step}`);
  return `${kind}:${pluginId}:${nth}:${where}`;
}
