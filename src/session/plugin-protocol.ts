import type { MessagePort } from "node:worker_threads";
import type { HookKind, PluginManifest } from "../plugin/index.js";

/** What the main thread says to a plugin worker (Comlink). */
export type PluginWorkerService = {
  /** Imports the plugin's module and checks its options. */
  load(setup: { readonly module: string; readonly options: unknown }): Promise<PluginManifest>;
  /** Opens the hook lane to one session worker. */
  attach(lane: { readonly port: MessagePort; readonly name: string }): void;
  /** Answered at once unless the thread's event loop is blocked. */
  ping(argument: undefined): true;
};

/** What a session worker says on the hook lane. Calls: `hook`, `tool`, `capture`. Notes: `open`, `close`. */
export type HookCall = readonly [sessionId: string, kind: HookKind, facts: object, capture: boolean];
/** Answer of a hook that was asked to capture. A state that cannot be captured is not the hook's failure. */
export type HookAnswer = {
  readonly value: unknown;
  readonly captured: boolean;
  readonly state: Uint8Array | undefined;
};
export type ToolRun = readonly [sessionId: string, toolName: string, args: unknown, facts: ToolFacts];
export type OpenInstance = readonly [sessionId: string, captured: Uint8Array | undefined];

export interface ToolFacts {
  readonly sessionId: string;
  readonly turnId: string;
  readonly callId: string;
}
