import type { MessagePort } from "node:worker_threads";
import type { PluginManifest } from "../plugin/index.js";

/** What the main thread says to a plugin worker (Comlink). */
export type PluginWorkerService = {
  /** Imports the plugin's module and checks its options. From then on the thread counts its heartbeats in `beat`. */
  load(setup: {
    readonly module: string;
    readonly options: unknown;
    readonly beat: Int32Array;
  }): Promise<PluginManifest>;
  /** Opens the hook lane to one session worker. */
  attach(lane: { readonly port: MessagePort; readonly name: string; readonly stage: Int32Array }): void;
};

/**
 * What a session worker says on the hook lane. Calls: `hook`, `tool`, `capture`, `operation`. Notes: `open`, `close`.
 * A session has a number on the lane, given with `open`, so that its id need not be said with every call.
 */
export const HOOK_LANE_METHODS = ["hook", "tool", "capture", "operation"] as const;
export type OpenInstance = readonly [session: number, sessionId: string, captured: Uint8Array | undefined];
/** The session's number, the kind's, whether to capture, then the facts (see hook-facts.ts). */
export type HookCall = readonly [session: number, kind: number, capture: CaptureMode, ...facts: unknown[]];
/** 0: do not capture. 1: the state if it changed. 2: the state in any case. */
export type CaptureMode = 0 | 1 | 2;
export type CaptureCall = readonly [session: number, mode: CaptureMode];
/** Answer of a hook that was asked to capture. A state that cannot be captured is not the hook's failure. */
export type HookAnswer = {
  readonly value: unknown;
  readonly captured: boolean;
  readonly state: Uint8Array | undefined;
};
export type ToolRun = readonly [session: number, toolName: string, args: unknown, facts: ToolFacts];

export type OperationRun = readonly [session: number, name: string, args: unknown, sessionId: string | undefined];

export interface ToolFacts {
  readonly sessionId: string;
  readonly turnId: string;
  readonly callId: string;
}
