import { type Authority, type ToolCall, turnIdOf } from "../../kernel/index.js";
import type { Contributions, Extensions, HookFacts, HookKind, HostMethod, PluginManifest } from "../../plugin/index.js";
import type { PluginLane } from "../calls/index.js";

/** What the main thread says to a plugin worker (Comlink). */
export type PluginWorkerService = {
  /** Imports the plugin's module and checks its options. From the first lane on the thread counts heartbeats in `beat`. */
  load(setup: {
    readonly module: string;
    readonly options: unknown;
    readonly development: boolean;
    readonly beat: Int32Array;
  }): Promise<PluginManifest>;
  /** Opens the hook lane to one session worker, and beside it the port for host services. */
  attach(lane: Omit<PluginLane, "plugin"> & { readonly name: string }): Promise<void>;
};

/** What a plugin worker says to a session worker (Comlink): the host services, for a call of the hook lane. */
export type HostService = {
  host(argument: {
    /** The number of the call on the lane in whose name this is asked. */
    readonly call: number;
    readonly method: HostMethod;
    readonly args: readonly unknown[];
  }): Promise<unknown>;
};

/**
 * What a session worker says on the hook lane. Calls: see {@link HookLane}. Notes: `open`, `close`. A session has a number
 * on the lane, given with `open`, so that its id need not be said with every call.
 */
export const HOOK_LANE_METHODS = ["hook", "tool", "capture", "operation", "register"] as const;

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
}
export type OpenInstance = readonly [
  session: number,
  sessionId: string,
  captured: Uint8Array | undefined,
  init: InstanceInit | undefined,
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

/** What capturing came to. */
export interface Captured {
  /** Undefined when nothing changed. */
  readonly state: Uint8Array | undefined;
  /** Seen in development: the state changed and its revision did not. */
  readonly unrevised?: boolean;
}

/** Answer of a hook that was asked to capture. A state that cannot be captured is not the hook's failure. */
export type HookAnswer = {
  readonly value: unknown;
  readonly captured: Captured | undefined;
};
export interface ToolFacts {
  readonly sessionId: string;
  readonly turnId: string;
  readonly callId: string;
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
  before_turn: ["turnIndex", "input", "pluginInput", "messageCount"],
  tool_catalog_contributor: ["turnIndex", "tools", "hiddenTools", "subagent", "extensions"],
  prompt_contributor: ["turnIndex", "input", "pluginInput", "tools"],
  assistant_stream: ["turnIndex", "step", "blockId", "chunk"],
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

/** Which hook a call is for. */
export function hookOf(number: number): HookRef {
  return { kind: KINDS[number % NTH] as HookKind, nth: Math.trunc(number / NTH) };
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
  for (const field of FIELDS[kind] as readonly string[]) {
    const value = (facts as Record<string, unknown>)[field];
    if (field !== "call") {
      payload.push(value);
      continue;
    }
    const { callId, toolName, args } = value as ToolCall;
    payload.push(callId, toolName, args);
  }
  return payload;
}

/** Writes a call's facts onto a hook's context. */
export function unpackFacts(target: object, kind: HookKind, sessionId: string, payload: HookCall): void {
  const context = target as Record<string, unknown>;
  context.sessionId = sessionId;
  let at = 3;
  for (const field of FIELDS[kind] as readonly string[]) {
    if (field === "call") context.call = { callId: payload[at++], toolName: payload[at++], args: payload[at++] };
    else context[field] = payload[at++];
  }
  if (!OUTSIDE_TURNS.includes(kind)) context.turnId = turnIdOf(context.turnIndex as number);
}

/** Names a hook call within its turn, in every life of the turn alike; undefined for one that no turn repeats. */
export function placeOf(pluginId: string, { kind, nth }: HookRef, facts: object): string | undefined {
  if (OUTSIDE_TURNS.includes(kind) || kind === "turn_persisted") return undefined;
  const { call, checkpoint, step } = facts as Partial<HookFacts["before_tool_call"] & HookFacts["checkpoint"]>;
  const where = call?.callId ?? (checkpoint === undefined ? "" : `${checkpoint}.${step}`);
  return `${kind}:${pluginId}:${nth}:${where}`;
}
