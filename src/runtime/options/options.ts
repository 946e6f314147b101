import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import type { Clock } from "../../async/index.js";
import {
  type AttachmentPolicy,
  COMMIT_BUDGET,
  checkBudget,
  checkConfig,
  checkPrices,
  checkPromptLayer,
  DEFAULT_ATTACHMENTS,
  DEFAULT_CONFIG,
  type TenantBudget,
} from "../../kernel/index.js";
import type { ToolDefinition } from "../../plugin/index.js";
import {
  type AgentsSetup,
  type ResidencyLimits,
  type TraceEvent,
  type TurnLimit,
  UNSAYABLE,
  type WorkerSettings,
} from "../../session/index.js";
import type { StoreOptions, WorkOptions } from "../../store/index.js";
import type { Listening } from "../../trace/index.js";
import { type AgentDefinitions, resolveAgents } from "./agent-entry.js";
import { type BuiltInBodies, builtInTools } from "./built-in-tools.js";
import { resolveListening } from "./listening.js";
import { resolveCalling, resolveModel, resolveModels } from "./model-settings.js";
import { checkFields, flag, invalid, positive, positiveOrNull, text } from "./option-checks.js";
import { mayWriteCompiled, ThreadPermissions } from "./permissions.js";
import { type ResolvedPlugin, resolvePlugins, resolveProtocol } from "./plugin-entry.js";
import { resolveTenantBudgets } from "./tenant-budgets.js";
import { resolveTools } from "./tool-entry.js";
import {
  ATTACHMENT_OPTIONS,
  COMMIT_BUDGET_OPTIONS,
  JOURNAL_OPTIONS,
  type JournalOptions,
  type SecretsOf,
  STORE_OPTIONS,
  TROUPE_OPTIONS,
  type TroupeOptions,
} from "./troupe-options.js";
import { NO_TURN_LIMIT, turnLimitOf, turnLimitProblem } from "./turn-limit.js";

/** Options checked and made plain: what can cross a thread, and the host's closures beside it. */
export interface ResolvedOptions {
  /** For the session workers. */
  readonly worker: WorkerSettings;
  readonly agents: AgentsSetup;
  /** As the host wrote them. */
  readonly agentDefinitions: AgentDefinitions;
  readonly secrets: SecretsOf | undefined;
  readonly plugins: readonly ResolvedPlugin[];
  readonly hostTools: ReadonlyMap<string, ToolDefinition>;
  /** What the runtime's own tools do: told by whoever makes the runtime, before anything is called. */
  readonly builtIns: { bodies: BuiltInBodies | undefined };
  readonly store: StoreOptions;
  /** Of the threads that run plugins and tools. */
  readonly permissions: ThreadPermissions;
  /** Environment of the threads of sessions and of the store, where it is not the process's own. */
  readonly threadEnv: NodeJS.ProcessEnv | undefined;
  /** Told while the store is brought up to date. */
  readonly onStoreProgress: WorkOptions["onProgress"];
  /** Undefined: no tenant has a budget. */
  readonly tenantBudget: ((tenant: string) => TenantBudget | null | undefined) | undefined;
  readonly clock: Clock;
  readonly onTrace: ((event: TraceEvent) => void) | undefined;
  /** Undefined: nobody is told of events. */
  readonly listening: Listening | undefined;
  readonly sessionWorkers: number;
  readonly sessionBlockedMs: number;
  /** How long a session worker may take to load everything that runs on it: what each may take, and some more. */
  readonly configureMs: number;
  /** Undefined: as much as Node gives a thread. */
  readonly sessionHeapMb: number | undefined;
  readonly memoryLimitMb: number | undefined;
  readonly drainMs: number;
}

/** What a session worker does beside loading: checking schemas, describing pool tools. */
const CONFIGURE_MS = 30_000;
/** The longest that a timer can wait. */
const LONGEST_MS = 2 ** 31 - 1;

export function resolveOptions(options: TroupeOptions, clock: Clock): ResolvedOptions {
  if (typeof options !== "object" || options === null) throw invalid("createTroupe takes an options object");
  checkFields(options, TROUPE_OPTIONS, "createTroupe");
  const hookDeadlineMs = positive(options.hookDeadlineMs, 5_000, "hookDeadlineMs");
  const store = resolveStore(options.store ?? { memory: true });
  const permissions = new ThreadPermissions("path" in store ? { storePath: store.path } : {});
  const builtIns: ResolvedOptions["builtIns"] = { bodies: undefined };
  const own = builtInTools(options.builtInTools, () => builtIns.bodies as BuiltInBodies);
  const { definitions, granted, ...tools } = resolveTools(options.tools ?? {}, permissions, own);
  const { journals, onMismatch } = resolveJournal(options.journal ?? "path" in store);
  const { onTrace, protocol, protocols = [], secrets } = options;
  const development = flag(options.development, process.env.NODE_ENV !== "production", "development");
  if (onTrace !== undefined && typeof onTrace !== "function") throw invalid("onTrace must be a function");
  const modelLoadMs = positive(options.modelLoadMs, 30_000, "modelLoadMs");
  if (secrets !== undefined && typeof secrets !== "function")
    throw invalid("secrets must be a function that returns the secrets of a tenant");
  if (!Array.isArray(protocols)) throw invalid("protocols must be a list of { module, options? }");
  const { calling, models } = resolveCalling(options, resolveModels(options.models ?? {}));
  const agents = resolveAgents(options.agents ?? {}, { models, nameModel: unsayableNames("start") });
  const plugins = [
    ...resolvePlugins(options.plugins ?? [], { hookDeadlineMs, development }),
    ...[...(protocol === undefined ? [] : [protocol]), ...protocols].map((entry) =>
      resolveProtocol(entry, { hookDeadlineMs, development }),
    ),
  ];
  const listening = resolveListening(options);
  const inlineMs = plugins.map(({ tier, loadMs }) => (tier === "inline" ? loadMs : 0));
  const toolMs = tools.poolTools.map(({ loadMs }) => loadMs);
  return {
    worker: {
      model: options.model === undefined ? undefined : resolveModel(options.model, "model"),
      models,
      calling,
      modelLoadMs,
      modelInstances: positive(options.modelInstances, 256, "modelInstances"),
      secrets: secrets !== undefined,
      secretsTtlMs: options.secretsTtlMs === undefined ? null : positive(options.secretsTtlMs, 1, "secretsTtlMs"),
      onMissingAgent: resolveOnMissing(options.onMissingAgent),
      prompt: options.prompt === undefined ? undefined : checkPromptLayer(options.prompt),
      tenantBudgets: options.tenantBudgets !== undefined,
      budget: options.budget === undefined ? null : checkBudget(options.budget),
      prices: checkPrices(options.prices ?? {}),
      ...tools,
      pool: { maxThreads: positive(options.toolThreads, 2, "toolThreads") },
      hookDispatch: resolveDispatch(options.hookDispatch),
      config: checkConfig({
        ...DEFAULT_CONFIG,
        instructions: text(options.instructions, "instructions"),
        maxSteps: positiveOrNull(options.maxSteps, DEFAULT_CONFIG.maxSteps, "maxSteps"),
        noProgressLimit: positiveOrNull(options.noProgressLimit, DEFAULT_CONFIG.noProgressLimit, "noProgressLimit"),
        maxContextTokens:
          options.maxContextTokens === undefined ? null : positive(options.maxContextTokens, 1, "maxContextTokens"),
        compaction: options.compaction ?? null,
        window: options.window ?? null,
        cache: options.cache ?? DEFAULT_CONFIG.cache,
      }),
      turnLimit: resolveTurnLimit(options),
      mailboxLimit: positive(options.mailboxLimit, 64, "mailboxLimit"),
      attachments: resolveAttachments(options.attachments ?? {}),
      residency: resolveResidency(options),
      journals,
      onMismatch,
      standardProtocol: protocol === undefined ? "default" : options.agents === undefined ? "none" : "further",
      tracing: onTrace !== undefined,
      events: listening && { content: listening.content },
      development,
    },
    agents,
    agentDefinitions: { ...options.agents },
    secrets,
    tenantBudget: resolveTenantBudgets(options.tenantBudgets),
    plugins,
    hostTools: definitions,
    builtIns,
    store,
    permissions,
    threadEnv: mayWriteCompiled([...granted, ...plugins.map((plugin) => plugin.permissions)])
      ? { ...process.env, NODE_DISABLE_COMPILE_CACHE: "1" }
      : undefined,
    onStoreProgress: options.store?.onProgress,
    clock,
    onTrace,
    listening,
    sessionWorkers: positive(options.sessionWorkers, Math.max(2, availableParallelism()), "sessionWorkers"),
    sessionBlockedMs: positive(options.sessionBlockedMs, 10_000, "sessionBlockedMs"),
    configureMs: Math.min(
      LONGEST_MS,
      CONFIGURE_MS +
        modelLoadMs * (1 + Object.keys({ ...models, ...agents.models }).length) +
        Math.max(0, ...inlineMs, ...toolMs),
    ),
    sessionHeapMb:
      options.sessionHeapMb === undefined ? undefined : positive(options.sessionHeapMb, 1, "sessionHeapMb"),
    memoryLimitMb:
      options.memoryLimitMb === undefined ? undefined : positive(options.memoryLimitMb, 1, "memoryLimitMb"),
    drainMs: positive(options.drainMs, 5_000, "drainMs"),
  };
}

function resolveTurnLimit(options: TroupeOptions): TurnLimit {
  const problem = turnLimitProblem(options);
  if (problem !== undefined) throw invalid(problem);
  return { ...NO_TURN_LIMIT, ...turnLimitOf(options) };
}

function resolveResidency({
  parkAfterMs = 300_000,
  maxResident,
  parkAtHeapShare: heapShare = 0.7,
  recycleAtHeapShare: recycleHeapShare = 0.85,
}: TroupeOptions): ResidencyLimits {
  if (typeof parkAfterMs !== "number" || !(parkAfterMs >= 0)) throw invalid("parkAfterMs must be a number from 0");
  if (!isShare(heapShare)) throw invalid("parkAtHeapShare must be a number above 0, and 1 at most");
  if (recycleHeapShare !== null && !isShare(recycleHeapShare))
    throw invalid("recycleAtHeapShare must be a number above 0, and 1 at most, or null");
  return {
    parkAfterMs,
    maxResident: maxResident === undefined ? Number.POSITIVE_INFINITY : positive(maxResident, 1, "maxResident"),
    heapShare,
    recycleHeapShare,
  };
}

/** Options say what a journal does, and that there is one. */
function resolveJournal(journal: boolean | JournalOptions): Pick<WorkerSettings, "journals" | "onMismatch"> {
  if (typeof journal === "boolean") return { journals: journal, onMismatch: "use_recorded" };
  if (typeof journal !== "object" || journal === null) throw invalid("journal must be true, false or { onMismatch }");
  checkFields(journal, JOURNAL_OPTIONS, "journal");
  const { onMismatch = "use_recorded" } = journal;
  if (onMismatch !== "use_recorded" && onMismatch !== "stop")
    throw invalid(`journal.onMismatch must be "use_recorded" or "stop", not ${String(onMismatch)}`);
  return { journals: true, onMismatch };
}

function resolveOnMissing(onMissing: unknown): "refuse" | "newest" {
  if (onMissing === undefined || onMissing === "refuse") return "refuse";
  if (onMissing === "newest") return onMissing;
  throw invalid(`onMissingAgent must be "refuse" or "newest", not ${String(onMissing)}`);
}

/** Names for models that only agents have: no host and no turn can say them. */
export function unsayableNames(when: string): () => string {
  let last = 0;
  return () => `${UNSAYABLE}${when} ${++last}`;
}

function isShare(value: unknown): value is number {
  return typeof value === "number" && value > 0 && value <= 1;
}

function resolveAttachments(attachments: Partial<AttachmentPolicy>): AttachmentPolicy {
  checkFields(attachments, ATTACHMENT_OPTIONS, "attachments");
  const { urls, maxBytes } = attachments;
  const named = Array.isArray(urls) && urls.every((host) => typeof host === "string");
  if (urls !== undefined && typeof urls !== "boolean" && !named)
    throw invalid("attachments.urls must be true, false or a list of host names");
  return {
    urls: urls ?? DEFAULT_ATTACHMENTS.urls,
    maxBytes: positive(maxBytes, DEFAULT_ATTACHMENTS.maxBytes, "attachments.maxBytes"),
  };
}

function resolveStore(store: NonNullable<TroupeOptions["store"]>): StoreOptions {
  if (typeof store === "object" && store !== null) {
    checkFields(store, STORE_OPTIONS, "store");
    const { commitBudget, onProgress } = store;
    checkFields(commitBudget ?? {}, COMMIT_BUDGET_OPTIONS, "store.commitBudget");
    if (onProgress !== undefined && typeof onProgress !== "function")
      throw invalid("store.onProgress must be a function");
    const budget = commitBudget !== undefined && {
      commitBudget: {
        bytes: positive(commitBudget.bytes, COMMIT_BUDGET.bytes, "store.commitBudget.bytes"),
        nodes: positive(commitBudget.nodes, COMMIT_BUDGET.nodes, "store.commitBudget.nodes"),
      },
    };
    if ("memory" in store && "path" in store && store.memory === true && store.path !== undefined)
      throw invalid("store is in memory or at a path: give one of memory and path");
    if ("memory" in store && store.memory === true) return { memory: true, ...budget };
    if ("path" in store && typeof store.path === "string" && store.path !== "") {
      return { path: resolve(store.path), ...budget };
    }
  }
  throw invalid('store must be { memory: true } or { path: "./folder" }');
}

function resolveDispatch(dispatch: TroupeOptions["hookDispatch"]): "sequential" | "concurrent" {
  if (dispatch === undefined || dispatch === "sequential") return "sequential";
  if (dispatch === "concurrent") return dispatch;
  throw invalid(`hookDispatch must be "sequential" or "concurrent", not ${String(dispatch)}`);
}
