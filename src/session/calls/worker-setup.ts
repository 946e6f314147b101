import type { RecordableHistogram } from "node:perf_hooks";
import type { MessagePort } from "node:worker_threads";
import type {
  Agent,
  AttachmentPolicy,
  CallSettings,
  ModelPrices,
  PromptLayer,
  SessionBudget,
  SessionConfig,
  ToolSpec,
  Usage,
} from "../../kernel/index.js";
import type { ModelSource } from "../../model/index.js";
import type { HookKind, PluginManifest, ToolPolicy } from "../../plugin/index.js";
import type { StoreOptions } from "../../store/index.js";
import type { PoolTool } from "../../tools/index.js";
import type { EventSink, PhaseFailures } from "../../trace/index.js";

/** What becomes of a hook that fails, by kind; only where it is not what the kind does by itself. */
export type FailurePolicies = { readonly [K in HookKind]?: "fail_turn" | "skip" };

/** A plugin as the main thread sets it up in every session worker. */
export type PluginSetup = {
  readonly deadlineMs: number;
  /** A child session may do without it. */
  readonly optionalInChildren: boolean;
  readonly onFailure: FailurePolicies;
  /** Sessions go on without it when it is given up. */
  readonly optional: boolean;
  /** It is a protocol: a session has one of them, the first unless its agent names another. */
  readonly isProtocol?: boolean;
} & (
  | {
      readonly tier: "worker";
      readonly manifest: PluginManifest;
      /** The group it runs in, and its place there. */
      readonly group: number;
      readonly member: number;
    }
  | { readonly tier: "inline"; readonly module: string; readonly options: unknown; readonly loadMs: number }
);

/**
 * What becomes of a turn that is taken up and would now ask for something else than it did: it goes on with what was
 * recorded, or it is stopped with `replay_mismatch`.
 */
export type OnMismatch = "use_recorded" | "stop";

/** The first character of the names of models that only agents have: no host and no turn can say them. */
export const UNSAYABLE = "\0";

/** The agents, and the models that only they have, by the names the agents call them. */
export interface AgentsSetup {
  readonly agents: readonly Agent[];
  readonly models: Readonly<Record<string, ModelSource>>;
}

export interface GroupSetup {
  /** What errors call it: the plugin's id, or the group's name. */
  readonly name: string;
  readonly shards: number;
  readonly isolation: "shared" | "session";
}

/** What a new session worker is told. */
export interface SessionWorkerSetup extends WorkerSettings {
  readonly store: { readonly port: MessagePort; readonly options: StoreOptions; readonly gate: Int32Array | undefined };
  /** The lane to the main thread. */
  readonly mainPort: MessagePort;
  /** One for each runtime: names its calls. */
  readonly runtimeId: string;
  readonly plugins: readonly PluginSetup[];
  readonly agents: AgentsSetup;
  /** By number: how the sessions of a group are spread over hosts. */
  readonly groups: readonly GroupSetup[];
  /** Tools' schemas that another session worker has checked, as JSON. */
  readonly usableSchemas: readonly string[];
}

/** What is the same for every session worker of a runtime. */
export interface WorkerSettings {
  readonly model: ModelSource | undefined;
  /** Further models, by name. */
  readonly models: Readonly<Record<string, ModelSource>>;
  /** How models are called unless agent, session or turn say otherwise. */
  readonly calling: CallSettings;
  /** How long loading each model's module may take, and making a model for a tenant and agent. */
  readonly modelLoadMs: number;
  /** How many models made for tenants and agents each worker keeps. */
  readonly modelInstances: number;
  /** The host gives secrets. */
  readonly secrets: boolean;
  /** How old they may be; null: any age. */
  readonly secretsTtlMs: number | null;
  readonly onMissingAgent: "refuse" | "newest";
  /** The host's share of every system prompt. */
  readonly prompt: PromptLayer | undefined;
  readonly budget: SessionBudget | null;
  /** Tenants may have budgets. */
  readonly tenantBudgets: boolean;
  readonly prices: ModelPrices;
  readonly hostTools: readonly (ToolPolicy & { readonly spec: ToolSpec })[];
  readonly poolTools: readonly (PoolTool & Pick<ToolPolicy, "timeoutMs">)[];
  readonly pool: { readonly maxThreads: number };
  readonly hookDispatch: "sequential" | "concurrent";
  /** What sessions are configured with until somebody says otherwise. */
  readonly config: SessionConfig;
  /** How long a turn may take that says nothing else. */
  readonly turnLimit: TurnLimit;
  readonly mailboxLimit: number;
  /** Which attachments turns and results of tools may have. */
  readonly attachments: AttachmentPolicy;
  readonly residency: ResidencyLimits;
  /** Turns are written down as they go. */
  readonly journals: boolean;
  /** What becomes of a turn that is taken up and would now ask for something else than it did. */
  readonly onMismatch: OnMismatch;
  /** `default`: no plugin of the options is the protocol. `further`: only agents that name it have it. */
  readonly standardProtocol: "default" | "further" | "none";
  /** Somebody takes traces. */
  readonly tracing: boolean;
  /** Somebody listens to events, and whether to what people and models said too; undefined: nobody. */
  readonly events: Pick<EventSink, "content"> | undefined;
  readonly development: boolean;
}

/** How long a turn may take. */
export interface TurnLimit {
  /** From when it begins; null: as long as it takes. */
  readonly deadlineMs: number | null;
  /** Also while it waits for nothing but people. */
  readonly countsWaiting: boolean;
  /** What was shown of an answer it ends in is kept. */
  readonly keepsPartial: boolean;
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

/** Names a plugin host: a group of plugins, and which of the group's sessions. */
export interface HostName {
  /** The group's number in the runtime. */
  readonly group: number;
  /** `shard 0`, `quarantine`, `session chat-42`. */
  readonly key: string;
}

/** The hook lane between a session worker and one incarnation of a plugin host. */
export interface PluginLane extends HostName {
  readonly port: MessagePort;
  /** For the plugins' host services. */
  readonly hostPort: MessagePort;
  /** Names this lane in the host's stage; never given twice in a runtime. */
  readonly lane: number;
  /** Shared with the host and all its lanes: which call holds its thread. */
  readonly stage: Int32Array;
  /** Shared with the host: the last call of this lane it began. */
  readonly started: Int32Array;
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
  /** What its models have read and said since its thread began. */
  readonly tokens: {
    readonly byModel: Readonly<Record<string, Usage>>;
    /** Of sessions that have an agent. */
    readonly byAgent: Readonly<Record<string, Usage>>;
  };
  /** Those the asker does not have yet, live: what is recorded later is seen there too. */
  readonly histograms: readonly (readonly [string, RecordableHistogram])[];
  /** Hooks that failed so far; a hook that never did is not here. */
  readonly failures: readonly PhaseFailures[];
}
