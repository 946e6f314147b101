import type { RecordableHistogram } from "node:perf_hooks";
import type { MessagePort } from "node:worker_threads";
import type { Activity, Owned, PluginEvent, ToolSpec } from "../kernel/index.js";
import type { ModelSource } from "../model/index.js";
import type { OperationKind, OperationSpec, PluginManifest } from "../plugin/index.js";
import type { StoreOptions } from "../store/index.js";

/** What a child session may not do although its parent can. It only ever grows on the way down. */
export interface Authority {
  readonly hiddenTools?: readonly string[];
}

/** A plugin as the main thread sets it up in every session worker. */
export type PluginSetup =
  | { readonly tier: "worker"; readonly manifest: PluginManifest; readonly deadlineMs: number }
  | { readonly tier: "inline"; readonly module: string; readonly options: unknown; readonly deadlineMs: number };

export interface SessionWorkerSetup {
  readonly index: number;
  readonly store: { readonly port: MessagePort; readonly options: StoreOptions };
  /** The lane to the main thread. */
  readonly mainPort: MessagePort;
  readonly model: ModelSource | undefined;
  readonly plugins: readonly PluginSetup[];
  readonly hostTools: readonly { readonly spec: ToolSpec; readonly timeoutMs?: number }[];
  readonly poolTools: readonly { readonly name: string; readonly module: string; readonly timeoutMs?: number }[];
  readonly pool: { readonly maxThreads: number };
  readonly hookDispatch: "sequential" | "concurrent";
  readonly instructions: string;
  readonly maxSteps: number;
  readonly mailboxLimit: number;
}

export type SessionState = "opening" | "idle" | "running" | "parking" | "parked" | "closed" | "failed";

export interface SessionInfo {
  readonly id: string;
  readonly state: SessionState;
  /** The thread that hosts the session (`worker_threads` thread id). */
  readonly threadId: number;
  /** Turns stored so far. */
  readonly turns: number;
  readonly revision: number;
  readonly parent?: string;
}

export interface SessionWorkerStats {
  readonly sessions: number;
  readonly turns: number;
  readonly threadId: number;
  /** Messages on the hook lanes of this worker. */
  readonly hookMessages: { readonly sent: number; readonly received: number };
  readonly histograms: readonly (readonly [string, RecordableHistogram])[];
}

/** What came of an operation, as the host gets it. */
export interface OperationReceipt {
  readonly output: unknown;
  readonly events: readonly Owned<PluginEvent>[];
  /** Inputs of turns the operation asked for. */
  readonly turns: readonly string[];
}

export interface PluginLane {
  readonly plugin: number;
  readonly port: MessagePort;
  /** Shared with the plugin's thread: the last call it started. */
  readonly stage: Int32Array;
}

/** What the main thread says to a session worker (Comlink): everything that is not hot. */
export type SessionWorkerService = {
  configure(
    setup: SessionWorkerSetup,
  ): Promise<{ readonly threadId: number; readonly inline: readonly PluginManifest[] }>;
  /** The hook lane to one incarnation of a plugin's worker. */
  attachPlugin(lane: PluginLane): void;
  /** A plugin that will not come back. */
  failPlugin(argument: { readonly plugin: number; readonly code: string; readonly message: string }): void;
  open(argument: { readonly sessionId: string }): Promise<SessionInfo>;
  info(argument: { readonly sessionId: string }): Promise<SessionInfo>;
  /** The snapshot a fork is built from. */
  capture(argument: { readonly sessionId: string }): Promise<{ readonly snapshot: Uint8Array<ArrayBuffer> }>;
  adopt(argument: {
    readonly sessionId: string;
    readonly snapshot: Uint8Array;
    readonly authority: Authority;
  }): Promise<SessionInfo>;
  /** Runs an operation of a plugin on a session. */
  operate(argument: {
    readonly sessionId: string;
    readonly kind: OperationKind;
    readonly name: string;
    readonly args: unknown;
    readonly about: string | undefined;
  }): Promise<OperationReceipt>;
  operations(argument: undefined): readonly OperationSpec[];
  /** Finishes the session's queued turns, stores it and forgets it. */
  release(argument: { readonly sessionId: string }): Promise<void>;
  stats(argument: undefined): SessionWorkerStats;
  /** Ends every session: running and queued turns get `drainMs` to finish, then they are cancelled. */
  shutdown(argument: { readonly drainMs: number }): Promise<void>;
};

/** What the main thread says on the lane. Call: `turn`. Notes: `listen`, `cancel`. */
export type TurnCall = readonly [key: number, sessionId: string, input: string, listen: boolean];
export type CancelNote = readonly [key: number, reason: string];

/** What a session worker says to the main thread on the lane. Call: `tool`. Note: `activity`. */
export type ActivityNote = readonly [key: number, activity: Activity];
export type HostToolCall = readonly [
  toolName: string,
  args: unknown,
  facts: { sessionId: string; turnId: string; callId: string },
];
