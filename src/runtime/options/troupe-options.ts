import type {
  AttachmentPolicy,
  CachePolicy,
  CommitBudget,
  CompactionPolicy,
  FieldsOf,
  HistoryWindow,
  ModelPrices,
  PromptLayer,
  SessionBudget,
  TenantBudget,
} from "../../kernel/index.js";
import type { OnMismatch, TraceEvent } from "../../session/index.js";
import type { StoreOptions, WorkOptions } from "../../store/index.js";
import type { AgentDefinitions } from "./agent-entry.js";
import type { BuiltInTool } from "./built-in-tools.js";
import type { ListeningOptions } from "./listening.js";
import type { ModelCallOptions, ModelEntry } from "./model-settings.js";
import type { PluginEntry } from "./plugin-entry.js";
import type { ToolEntries } from "./tool-entry.js";

/** What becomes of turns that a crash or a restart interrupted. */
export interface JournalOptions {
  /**
   * A turn that is taken up goes on with the prompt, tools and settings it was asked with, and with the answers it has
   * (`use_recorded`, the default); or it is prepared anew and ends with `replay_mismatch` when it would ask for something
   * else than it did (`stop`).
   */
  readonly onMismatch?: OnMismatch;
}

export interface TroupeOptions extends ModelCallOptions, ListeningOptions {
  /** A module that default-exports an AI SDK language model, or a script (`scriptedModel(…)`). Default: the echo script. */
  readonly model?: ModelEntry;
  /** Further models by name, for sessions (`configure({ model })`) and single turns (`turn(input, { model })`). */
  readonly models?: Readonly<Record<string, ModelEntry>>;
  /**
   * How long loading one model's module may take, with every top-level await and the function it exports, or making a
   * model for a tenant and agent, with its secrets; then `model_load_timeout`. Default 30,000.
   */
  readonly modelLoadMs?: number;
  /** Models made for tenants and agents that each session worker keeps; of more, those nobody used longest go. Default 256. */
  readonly modelInstances?: number;
  /**
   * Gives the secrets of a tenant (undefined: of sessions without one) to model modules that take them. Called on this
   * thread when a session worker makes a model: for the first turn of a tenant and agent there, after a provider refused
   * its key, and when `secretsTtlMs` are over. Never stored, never logged, and hidden in errors.
   */
  readonly secrets?: SecretsOf;
  /** How long a model may go on with the secrets it was made with. Default: until its provider refuses them. */
  readonly secretsTtlMs?: number;
  /** Agents by name and version, `support@3`; see `troupe.agents` for changing them later. */
  readonly agents?: AgentDefinitions;
  /**
   * A session whose agent's version is gone: its turns are refused with `agent_unknown` (`refuse`, the default), or it
   * goes on with the newest version of the agent (`newest`).
   */
  readonly onMissingAgent?: "refuse" | "newest";
  /** In the order they run: a list, or a `PluginStack`. */
  readonly plugins?: Iterable<PluginEntry>;
  /** The plugin that decides how turns talk to the model. Always inline. Default: native tool calling. */
  readonly protocol?: PluginEntry;
  /** Further protocols, for agents that name them by their plugins' ids. Always inline. */
  readonly protocols?: readonly PluginEntry[];
  /** Gets what plugins trace. Without one nothing crosses a thread for it. */
  readonly onTrace?: (event: TraceEvent) => void;
  /** Checks that cost time and find mistakes, such as state that changed under the same revision. Default: unless NODE_ENV is "production". */
  readonly development?: boolean;
  /** By name: closures of the host (they run on this thread) or `{ module }` for the pool. */
  readonly tools?: ToolEntries;
  /** Tools of the runtime's own that sessions have beside these: `wake_me`. Default: none. */
  readonly builtInTools?: readonly BuiltInTool[];
  /**
   * Default `{ memory: true }`: gone with the process. `onProgress` is told how far a store of an older layout is being
   * brought up to date, which is done before `createTroupe` resolves.
   */
  readonly store?: StoreOptions & Pick<WorkOptions, "onProgress">;
  /**
   * Writes turns down as they go, so that a crash costs nothing that was done: they are taken up again by the next worker
   * or the next process. With options: what such a turn does. Default: with a store that has a path.
   */
  readonly journal?: boolean | JournalOptions;
  /** The first part of every system prompt. */
  readonly instructions?: string;
  /** The host's share of every system prompt: a template, and what stands in its slots. */
  readonly prompt?: PromptLayer;
  /** Which attachments turns may have. Default: stored ones and bytes up to 20 MB, no addresses. */
  readonly attachments?: Partial<AttachmentPolicy>;
  /** What each session may spend, until `session.setBudget` says otherwise. Default: as much as it takes. */
  readonly budget?: SessionBudget;
  /**
   * What all sessions of a tenant may spend together in a period: by tenant with a default, or a function of the tenant;
   * undefined: as much as they take. `{}` for budgets that `troupe.setTenantBudget` gives. Default: tenants have none.
   */
  readonly tenantBudgets?: TenantBudgets;
  /** What a million tokens cost, by model id; needed for a budget's `maxCost`. */
  readonly prices?: ModelPrices;
  /** Session workers. Default: as many as cores, two at least. */
  readonly sessionWorkers?: number;
  /** Threads of each session worker's tool pool. Default 2. */
  readonly toolThreads?: number;
  /** Default 5,000. */
  readonly hookDeadlineMs?: number;
  /** Hooks of one kind: one plugin after another (default), or all at once and folded in registration order. */
  readonly hookDispatch?: "sequential" | "concurrent";
  /** Model calls one turn may make; null for as many as it takes. Default 32. */
  readonly maxSteps?: number | null;
  /**
   * How long a turn may take, in milliseconds from when it begins, unless it says otherwise; null for as long as it does.
   * Past it the turn ends with `deadline`, code `turn_deadline`. Default null.
   */
  readonly deadlineMs?: number | null;
  /** The time counts also while a turn waits for people: for answers to pending tools, or for a budget to be raised. */
  readonly deadlineCountsWaiting?: boolean;
  /** What was shown of the answer the deadline comes in is kept, as by `session.cancel`. Default true. */
  readonly deadlineKeepsPartial?: boolean;
  /** Steps in a row in which nothing worked before a turn is stopped; null for as many as it takes. Default 12. */
  readonly noProgressLimit?: number | null;
  /** How much the model can read; told to context transforms, and what `compaction` goes by. Default: not known. */
  readonly maxContextTokens?: number;
  /**
   * Long conversations are summed up by themselves: before a model call whose context reaches a share (`at`) of
   * `maxContextTokens`, and once in a turn when the provider refuses the context as too long. Default: never.
   */
  readonly compaction?: CompactionPolicy | null;
  /**
   * How much of a long history the model is given: at most `maxMessages`, cut to `keepMessages` (default: half) when there
   * are more. Cut rarely, because every cut costs the provider's cache of the conversation. Default: all of it.
   */
  readonly window?: HistoryWindow;
  /**
   * Where requests are marked for providers that cache only what is marked (Anthropic, Bedrock), and whether others are
   * told which requests begin alike (OpenAI). `"auto"` (default): the tools and the system text, and the moving end of the
   * conversation. `"off"`: nowhere. A list of up to four points: exactly there.
   */
  readonly cache?: CachePolicy;
  /** Turns that may wait for one session. Default 64. */
  readonly mailboxLimit?: number;
  /**
   * How long a session may have nothing to do before it is parked: stored and out of memory, until the next message
   * brings it back. 0: no longer than it must. Default 300,000.
   */
  readonly parkAfterMs?: number;
  /** Sessions each session worker keeps in memory; above it the longest idle are parked. Default: any number. */
  readonly maxResident?: number;
  /** How full a session worker's heap may be, of 1, before it parks the longest idle. Default 0.7. */
  readonly parkAtHeapShare?: number;
  /**
   * How full a session worker's heap may stay, of 1, although everything idle is parked and the garbage collected, before
   * the worker is recycled: a new thread takes over its sessions, the old one finishes its turns and ends. One at a time.
   * Default 0.85; null: never.
   */
  readonly recycleAtHeapShare?: number | null;
  /**
   * How long one piece of synchronous work may hold a session worker (a model, an inline plugin) before its thread is
   * replaced: its sessions are opened again, and turns with a journal go on. Default 10,000.
   */
  readonly sessionBlockedMs?: number;
  /** Megabytes of JavaScript heap each session worker may have; one with more is replaced. Default: what Node gives a thread. */
  readonly sessionHeapMb?: number;
  /**
   * What the whole process may use, in MB; default what the container or the machine has. Near it the host is warned
   * (`memory_high`), and plugin threads that hold more than their `externalMb` are replaced although nobody calls them.
   */
  readonly memoryLimitMb?: number;
  /** How long `close()` lets turns finish before it cancels them. Default 5,000. */
  readonly drainMs?: number;
}

/** The budgets of tenants: those of some, and what the others have. Or whatever a function says. */
export type TenantBudgets =
  | {
      readonly default?: TenantBudget | undefined;
      readonly tenants?: Readonly<Record<string, TenantBudget | undefined>> | undefined;
    }
  | ((tenant: string) => TenantBudget | null | undefined);

/** What a host knows of a tenant that its models need. */
export type SecretsOf = (
  tenant: string | undefined,
) => Readonly<Record<string, string>> | undefined | Promise<Readonly<Record<string, string>> | undefined>;

/** Which there are: one that is forgotten here does not compile, and any other is refused. */
export const TROUPE_OPTIONS: FieldsOf<TroupeOptions> = {
  model: true,
  models: true,
  modelLoadMs: true,
  modelInstances: true,
  secrets: true,
  secretsTtlMs: true,
  agents: true,
  onMissingAgent: true,
  protocols: true,
  plugins: true,
  protocol: true,
  onTrace: true,
  development: true,
  tools: true,
  builtInTools: true,
  store: true,
  journal: true,
  instructions: true,
  prompt: true,
  attachments: true,
  budget: true,
  tenantBudgets: true,
  prices: true,
  sessionWorkers: true,
  toolThreads: true,
  hookDeadlineMs: true,
  hookDispatch: true,
  maxSteps: true,
  deadlineMs: true,
  deadlineCountsWaiting: true,
  deadlineKeepsPartial: true,
  noProgressLimit: true,
  maxContextTokens: true,
  compaction: true,
  window: true,
  cache: true,
  mailboxLimit: true,
  parkAfterMs: true,
  maxResident: true,
  parkAtHeapShare: true,
  recycleAtHeapShare: true,
  sessionBlockedMs: true,
  sessionHeapMb: true,
  drainMs: true,
  memoryLimitMb: true,
  modelOptions: true,
  modelRetry: true,
  fallbackModels: true,
  onEvent: true,
  log: true,
  logContent: true,
  redact: true,
};

export const STORE_OPTIONS: FieldsOf<NonNullable<TroupeOptions["store"]>> = {
  memory: true,
  path: true,
  commitBudget: true,
  onProgress: true,
};

export const COMMIT_BUDGET_OPTIONS: FieldsOf<CommitBudget> = {
  bytes: true,
  nodes: true,
};

export const ATTACHMENT_OPTIONS: FieldsOf<AttachmentPolicy> = {
  urls: true,
  maxBytes: true,
};

export const JOURNAL_OPTIONS: FieldsOf<JournalOptions> = {
  onMismatch: true,
};
