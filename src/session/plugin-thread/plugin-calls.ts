import type { MessagePort } from "node:worker_threads";
import type { Authority } from "../../kernel/index.js";
import type { Contributions, Extensions, HostMethod, PluginManifest } from "../../plugin/index.js";

/** What the main thread says to a plugin worker (Comlink). */
export type PluginWorkerService = {
  /** Imports the plugin's module and checks its options. From then on the thread counts its heartbeats in `beat`. */
  load(setup: {
    readonly module: string;
    readonly options: unknown;
    readonly development: boolean;
    readonly beat: Int32Array;
  }): Promise<PluginManifest>;
  /** Opens the hook lane to one session worker, and beside it the port for host services. */
  attach(lane: {
    readonly port: MessagePort;
    readonly hostPort: MessagePort;
    readonly name: string;
    readonly stage: Int32Array;
  }): void;
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
 * What a session worker says on the hook lane. Calls: `hook`, `tool`, `capture`, `operation`, `register`. Notes: `open`,
 * `close`. A session has a number on the lane, given with `open`, so that its id need not be said with every call.
 */
export const HOOK_LANE_METHODS = ["hook", "tool", "capture", "operation", "register"] as const;
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

/** The session's number, the kind's (with which hook of the kind), whether to capture, the facts (see hook-facts.ts). */
export type HookCall = readonly [session: number, kind: number, capture: CaptureMode, ...facts: unknown[]];
/** 0: do not capture. 1: the state if it changed. 2: the state in any case. */
export type CaptureMode = 0 | 1 | 2;
export type CaptureCall = readonly [session: number, mode: CaptureMode];
export type RegisterCall = readonly [session: number];
export interface RegisterAnswer {
  readonly contributions: Contributions;
  /** It keeps something for this session. One that does not need never be asked for it. */
  readonly stateful: boolean;
}

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
export type ToolRun = readonly [session: number, toolId: string, args: unknown, facts: ToolFacts];

export type OperationRun = readonly [session: number, name: string, args: unknown, sessionId: string | undefined];

export interface ToolFacts {
  readonly sessionId: string;
  readonly turnId: string;
  readonly callId: string;
}
