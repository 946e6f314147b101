import type { RecordableHistogram } from "node:perf_hooks";
import type { MessagePort } from "node:worker_threads";
import type {
  Activity,
  AppendRequest,
  AppendResult,
  CheckpointKind,
  InputItem,
  Json,
  LedgerEntry,
  Message,
  ModelPrices,
  Owned,
  Part,
  PendingInput,
  PluginEvent,
  PromptLayer,
  Role,
  SessionBudget,
  SessionConfig,
  SessionCreateRequest,
  SpendingReport,
  ToolOutput,
  ToolSpec,
  TurnIssue,
} from "../kernel/index.js";
import type { ModelSource } from "../model/index.js";
import type {
  HostMethod,
  OperationKind,
  OperationSpec,
  PluginManifest,
  ProtocolTurnOptions,
  SessionHandle,
  SessionView,
  ToolPolicy,
  ToolRecordView,
  TriggerSpec,
} from "../plugin/index.js";
import type { StoreOptions } from "../store/index.js";
import type { HostRelay, HostRelayMethod, TraceEvent } from "./host-relay.js";
import type { Observed } from "./observed.js";

/** Options for single plugins, by plugin id, given when a session is opened. */
export type SessionPluginOptions = Readonly<Record<string, Json>>;
/** Of most sessions. */
export const NO_PLUGIN_OPTIONS: SessionPluginOptions = Object.freeze({});

/** What makes a session other than the one it is made from. */
export type SessionMaking = Omit<SessionCreateRequest, "sessionId" | "usageSource"> & {
  /** The session that asked for it, when it is made from another one. */
  readonly createdBy?: string;
};

/** A plugin as the main thread sets it up in every session worker. */
export type PluginSetup = {
  readonly deadlineMs: number;
  /** A child session may do without it. */
  readonly optionalInChildren: boolean;
} & (
  | { readonly tier: "worker"; readonly manifest: PluginManifest }
  | { readonly tier: "inline"; readonly module: string; readonly options: unknown }
);

export interface SessionWorkerSetup {
  readonly index: number;
  readonly store: { readonly port: MessagePort; readonly options: StoreOptions };
  /** The lane to the main thread. */
  readonly mainPort: MessagePort;
  readonly model: ModelSource | undefined;
  /** Further models, by name. */
  readonly models: Readonly<Record<string, ModelSource>>;
  /** The host's share of every system prompt. */
  readonly prompt: PromptLayer | undefined;
  readonly budget: SessionBudget | null;
  readonly prices: ModelPrices;
  readonly plugins: readonly PluginSetup[];
  readonly hostTools: readonly (ToolPolicy & { readonly spec: ToolSpec })[];
  readonly poolTools: readonly (ToolPolicy & { readonly name: string; readonly module: string })[];
  readonly pool: { readonly maxThreads: number };
  readonly hookDispatch: "sequential" | "concurrent";
  /** What sessions are configured with until somebody says otherwise. */
  readonly config: SessionConfig;
  readonly mailboxLimit: number;
  readonly residency: ResidencyLimits;
  /** Turns are written down as they go. */
  readonly journals: boolean;
  /** One for each runtime: names its calls. */
  readonly runtimeId: string;
  /** No plugin of the options is the protocol: the standard one is. */
  readonly standardProtocol: boolean;
  /** Somebody takes traces. */
  readonly tracing: boolean;
  readonly development: boolean;
}

/** When a session worker parks sessions that have nothing to do. */
export interface ResidencyLimits {
  /** How long a session may be idle; 0: no longer than it must. */
  readonly parkAfterMs: number;
  /** How many may be in memory; more when more are busy. */
  readonly maxResident: number;
  /** How full the worker's heap may be, of 1. */
  readonly heapShare: number;
  /** How full it may stay, whatever is parked, before the worker says so; null: any. */
  readonly recycleHeapShare: number | null;
}

/** What a parked session leaves in memory, because no store has it and its plugins were told it. */
export interface Remnant {
  readonly pluginOptions?: SessionPluginOptions;
  readonly promptTokens?: number;
  /** Sessions its plugins made. */
  readonly created?: readonly string[];
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
  /** In memory. */
  readonly sessions: number;
  readonly parked: number;
  /** How full its heap is, of 1. */
  readonly heapShare: number;
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

/** A session's configuration after a change, and what hooks had to say against it. */
export interface ConfigReceipt {
  readonly config: SessionConfig;
  readonly changed: boolean;
  readonly issues: readonly TurnIssue[];
}

/** Which of a session's messages; places count from the end when they are negative. */
export interface MessageRange {
  readonly from?: number;
  readonly to?: number;
  /** Default: the frame the session is in. */
  readonly frameId?: string;
  /** Also what plugins and the protocol left there for themselves. */
  readonly records?: boolean;
}

/** A message in the tree a session and its forks form. */
export interface TreeMessage {
  /** Names the place: a fork can begin there. */
  readonly node: string;
  readonly parent: string | null;
  /** It is part of the session's own conversation. */
  readonly active: boolean;
  readonly role: Role;
  /** The beginning of its text. */
  readonly text: string;
}

/** What a session has from its plugins. */
export interface SessionSurface {
  readonly tools: readonly ToolRecordView[];
  readonly operations: readonly OperationSpec[];
  readonly triggers: readonly TriggerSpec[];
}

export interface PluginLane {
  readonly plugin: number;
  readonly port: MessagePort;
  /** For the plugin's host services. */
  readonly hostPort: MessagePort;
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
  open(argument: { readonly sessionId: string; readonly pluginOptions: SessionPluginOptions }): Promise<SessionInfo>;
  info(argument: { readonly sessionId: string }): Promise<SessionInfo>;
  /** The snapshot a fork is built from: of the session as it is, or as far as a node. */
  capture(argument: {
    readonly sessionId: string;
    readonly at: string | undefined;
  }): Promise<{ readonly snapshot: Uint8Array<ArrayBuffer> }>;
  adopt(argument: {
    readonly sessionId: string;
    readonly snapshot: Uint8Array;
    readonly making: SessionMaking;
  }): Promise<SessionHandle>;
  view(argument: { readonly sessionId: string }): Promise<SessionView>;
  messages(argument: { readonly sessionId: string; readonly range: MessageRange }): Promise<readonly Message[]>;
  /** As it is stored; asking does not bring a parked session back. */
  tree(argument: { readonly sessionId: string }): Promise<readonly TreeMessage[]>;
  spending(argument: { readonly sessionId: string }): Promise<SpendingReport>;
  /** Back in memory, with its history. */
  resume(argument: { readonly sessionId: string }): Promise<void>;
  /** At once, also while a turn runs. */
  setBudget(argument: { readonly sessionId: string; readonly budget: SessionBudget | null }): Promise<SpendingReport>;
  /** What plugins contribute to a session. */
  surface(argument: { readonly sessionId: string }): Promise<SessionSurface>;
  setConfig(argument: { readonly sessionId: string; readonly change: Partial<SessionConfig> }): Promise<ConfigReceipt>;
  refreshTools(argument: { readonly sessionId: string }): Promise<void>;
  /** False when no compactor had anything. */
  compact(argument: { readonly sessionId: string; readonly instructions: string | null }): Promise<boolean>;
  append(argument: { readonly sessionId: string; readonly request: AppendRequest }): Promise<AppendResult>;
  extend(argument: { readonly sessionId: string; readonly extension: Json }): Promise<void>;
  /** A host service about one of this worker's sessions, asked by another session. */
  hostCall(argument: {
    readonly sessionId: string;
    readonly pluginId: string;
    readonly method: HostMethod;
    readonly args: readonly unknown[];
  }): Promise<unknown>;
  /** Lets an input wait for the running turn, or for the next. */
  addInput(argument: {
    readonly sessionId: string;
    readonly text: string;
    readonly items: readonly InputItem[] | undefined;
    readonly key: string | undefined;
    readonly boundary: CheckpointKind | undefined;
  }): Promise<PendingInput>;
  inputs(argument: { readonly sessionId: string }): Promise<readonly PendingInput[]>;
  cancelInput(argument: {
    readonly sessionId: string;
    readonly named: string;
  }): Promise<"cancelled" | "not_found" | "already_taken">;
  /** Answers a tool call that waits for it. */
  completeTool(argument: {
    readonly sessionId: string;
    readonly key: string;
    readonly output: ToolOutput;
  }): Promise<void>;
  /** Sends a reader what happens in a session, from behind its cursor on; answers where it is then. */
  observe(argument: {
    readonly sessionId: string;
    readonly reader: number;
    readonly cursor: string | undefined;
  }): Promise<string>;
  unobserve(argument: { readonly sessionId: string; readonly reader: number }): void;
  /** Closes a session for another one: refused while a turn runs. */
  releaseIdle(argument: { readonly sessionId: string }): Promise<void>;
  /** Resolves when the session is stored and no longer in memory. */
  park(argument: { readonly sessionId: string }): Promise<void>;
  /** The same, for another worker: what the session leaves in memory goes there. */
  handOver(argument: { readonly sessionId: string }): Promise<Remnant>;
  takeOver(argument: { readonly sessionId: string; readonly remnant: Remnant }): void;
  /** Runs an operation of a plugin on a session. */
  operate(argument: {
    readonly sessionId: string;
    readonly kind: OperationKind;
    readonly name: string;
    readonly args: unknown;
    readonly about: string | undefined;
    readonly key: string | undefined;
  }): Promise<OperationReceipt>;
  operations(argument: undefined): readonly OperationSpec[];
  /** Finishes the session's queued turns, stores it and forgets it. */
  release(argument: { readonly sessionId: string }): Promise<void>;
  /** Cancels whatever a session is at and lets it go; resolves at once. */
  cancelWork(argument: { readonly sessionId: string; readonly reason: string }): Promise<void>;
  /** Forgets a session that is about to be deleted: refused while a turn runs that was not cancelled. */
  discard(argument: { readonly sessionId: string }): Promise<void>;
  stats(argument: undefined): SessionWorkerStats;
  /** Ends every session: running and queued turns get `drainMs` to finish, then they are cancelled. */
  shutdown(argument: { readonly drainMs: number }): Promise<void>;
};

/** What is asked of a session on the lane, because it must keep its place among the turns asked for before and after it. */
export type OrderedMethod =
  | "setConfig"
  | "refreshTools"
  | "compact"
  | "append"
  | "extend"
  | "hostCall"
  | "addInput"
  | "inputs"
  | "cancelInput"
  | "park"
  | "handOver"
  | "cancelWork"
  | "operate";

/** What a turn brings along beside its text. */
export interface TurnExtras {
  /** The input, when it is more than a text. */
  readonly items?: readonly InputItem[];
  /** The same, already stored: what waited for the turn. */
  readonly parts?: readonly Part[];
  /** Why the input is of no use. */
  readonly invalid?: string;
  /** The caller's own name for the turn. */
  readonly key?: string;
  /** Another model than the session's. */
  readonly model?: string;
  /** Laid over what host and session put into the prompt. */
  readonly prompt?: PromptLayer;
  readonly maxSteps?: number | null;
  /** What single plugins are told at the turn's beginning, by plugin id. */
  readonly pluginInputs?: Readonly<Record<string, Json>>;
  /** For the protocol, laid over the session's own. */
  readonly options?: ProtocolTurnOptions;
  readonly extension?: Json;
}

/** What the main thread says on the lane. Calls: `turn`, and {@link OrderedMethod}s. Notes: `listen`, `cancel`, `usage`. */
export type TurnCall = readonly [
  key: number,
  sessionId: string,
  input: string,
  listen: boolean,
  extras?: TurnExtras | undefined,
  /** Asked before, of a worker that was lost. */
  again?: boolean,
];
export type CancelNote = readonly [key: number, reason: string];
/** What a session's child has used; counted in the session's ledger. */
export type UsageNote = readonly [sessionId: string, entry: LedgerEntry];

/** What a session worker says to the main thread on the lane. Calls: `tool`, `relay`. Notes: `activity`, `trace`, `observed`, `full`. */
export type RelayCall = {
  [M in HostRelayMethod]: readonly [method: M, argument: Parameters<HostRelay[M]>[0]];
}[HostRelayMethod];
export type TraceNote = TraceEvent;
/** The worker's heap stays full: how full, of 1. */
export type FullNote = number;
export type ObservedNote = readonly [reader: number, observed: Observed];
export type ActivityNote = readonly [key: number, activity: Activity];
export type HostToolCall = readonly [
  toolName: string,
  args: unknown,
  facts: { sessionId: string; turnId: string; callId: string },
];
