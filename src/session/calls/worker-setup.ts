import type { RecordableHistogram } from "node:perf_hooks";
import type { MessagePort } from "node:worker_threads";
import type { ModelPrices, PromptLayer, SessionBudget, SessionConfig, ToolSpec } from "../../kernel/index.js";
import type { ModelSource } from "../../model/index.js";
import type { PluginManifest, ToolPolicy } from "../../plugin/index.js";
import type { StoreOptions } from "../../store/index.js";

/** A plugin as the main thread sets it up in every session worker. */
export type PluginSetup = {
  readonly deadlineMs: number;
  /** A child session may do without it. */
  readonly optionalInChildren: boolean;
} & (
  | { readonly tier: "worker"; readonly manifest: PluginManifest }
  | { readonly tier: "inline"; readonly module: string; readonly options: unknown }
);

/** What a new session worker is told. */
export interface SessionWorkerSetup extends WorkerSettings {
  readonly store: { readonly port: MessagePort; readonly options: StoreOptions };
  /** The lane to the main thread. */
  readonly mainPort: MessagePort;
  readonly plugins: readonly PluginSetup[];
  /** Tools' schemas that another session worker has checked, as JSON. */
  readonly usableSchemas: readonly string[];
}

/** What is the same for every session worker of a runtime. */
export interface WorkerSettings {
  readonly model: ModelSource | undefined;
  /** Further models, by name. */
  readonly models: Readonly<Record<string, ModelSource>>;
  /** The host's share of every system prompt. */
  readonly prompt: PromptLayer | undefined;
  readonly budget: SessionBudget | null;
  readonly prices: ModelPrices;
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

export interface PluginLane {
  readonly plugin: number;
  readonly port: MessagePort;
  /** For the plugin's host services. */
  readonly hostPort: MessagePort;
  /** Shared with the plugin's thread: the last call it started. */
  readonly stage: Int32Array;
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
  /** Those the asker does not have yet, live: what is recorded later is seen there too. */
  readonly histograms: readonly (readonly [string, RecordableHistogram])[];
}
