import { availableParallelism } from "node:os";
import { isAbsolute, resolve } from "node:path";
import { pathToFileURL } from "node:url";
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
  type ModelPrices,
  type PromptLayer,
  type SessionBudget,
  TroupeError,
} from "../../kernel/index.js";
import type { ModelSource } from "../../model/index.js";
import { checkToolDefinition, jsonSchemaOf, type ToolDefinition, toolPolicy } from "../../plugin/index.js";
import type { ResidencyLimits, TraceEvent, WorkerSettings } from "../../session/index.js";
import type { StoreOptions, WorkOptions } from "../../store/index.js";
import type { Permissions } from "./permissions.js";

/** A plugin as a host names it: by the module that default-exports it. */
export interface PluginEntry {
  readonly module: URL | string;
  readonly options?: unknown;
  /** `worker` (default): its own thread. `inline`: trusted, in the session worker, no hop. */
  readonly tier?: "worker" | "inline";
  /** How long one hook call may take. Default: the runtime's `hookDeadlineMs`. */
  readonly deadlineMs?: number;
  /** How long its thread may be blocked by one piece of synchronous work before it is replaced. Default 1,000. */
  readonly blockedMs?: number;
  /** Its thread starts with the first call that needs it; when the runtime starts it is loaded only to be looked at. Default false. */
  readonly lazy?: boolean;
  /** What an isolated plugin may do beyond computing; default nothing. `"all"` takes the seat belt off. */
  readonly permissions?: Permissions | "all";
  /** A child session may do without it (`authority.withoutPlugins`). Default: what watches the parent watches the child. */
  readonly optionalInChildren?: boolean;
}

/** A tool whose body runs in the tool pool: the module default-exports what `defineTool` returns. */
export interface PoolToolEntry {
  readonly module: URL | string;
  readonly timeoutMs?: number;
}

export interface TroupeOptions {
  /** A module that default-exports an AI SDK language model, or a script (`scriptedModel(…)`). Default: the echo script. */
  readonly model?: URL | string | ModelSource;
  /** Further models by name, for sessions (`configure({ model })`) and single turns (`turn(input, { model })`). */
  readonly models?: Readonly<Record<string, URL | string | ModelSource>>;
  /** In the order they run: a list, or a `PluginStack`. */
  readonly plugins?: Iterable<PluginEntry>;
  /** The plugin that decides how turns talk to the model. Always inline. Default: native tool calling. */
  readonly protocol?: PluginEntry;
  /** Gets what plugins trace. Without one nothing crosses a thread for it. */
  readonly onTrace?: (event: TraceEvent) => void;
  /** Checks that cost time and find mistakes, such as state that changed under the same revision. Default: unless NODE_ENV is "production". */
  readonly development?: boolean;
  /** By name: closures of the host (they run on this thread) or `{ module }` for the pool. */
  // biome-ignore lint/suspicious/noExplicitAny: each tool's arguments have their own type
  readonly tools?: Readonly<Record<string, ToolDefinition<any> | PoolToolEntry>>;
  /**
   * Default `{ memory: true }`: gone with the process. `onProgress` is told how far a store of an older layout is being
   * brought up to date, which is done before `createTroupe` resolves.
   */
  readonly store?: StoreOptions & Pick<WorkOptions, "onProgress">;
  /**
   * Writes turns down as they go, so that a crash costs nothing that was done: they are taken up again by the next worker
   * or the next process. Default: with a store that has a path.
   */
  readonly journal?: boolean;
  /** The first part of every system prompt. */
  readonly instructions?: string;
  /** The host's share of every system prompt: a template, and what stands in its slots. */
  readonly prompt?: PromptLayer;
  /** Which attachments turns may have. Default: stored ones and bytes up to 20 MB, no addresses. */
  readonly attachments?: Partial<AttachmentPolicy>;
  /** What each session may spend, until `session.setBudget` says otherwise. Default: as much as it takes. */
  readonly budget?: SessionBudget;
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
  /** Steps in a row in which nothing worked before a turn is stopped; null for as many as it takes. Default 12. */
  readonly noProgressLimit?: number | null;
  /** How much the model can read; told to context transforms. Default: not known. */
  readonly maxContextTokens?: number;
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
  /** How long `close()` lets turns finish before it cancels them. Default 5,000. */
  readonly drainMs?: number;
}

export interface ResolvedPlugin extends Required<PluginEntry> {
  readonly module: string;
  readonly development: boolean;
}

/** Options checked and made plain: what can cross a thread, and the host's closures beside it. */
export interface ResolvedOptions {
  /** For the session workers. */
  readonly worker: WorkerSettings;
  readonly attachments: AttachmentPolicy;
  readonly plugins: readonly ResolvedPlugin[];
  readonly hostTools: ReadonlyMap<string, ToolDefinition>;
  readonly store: StoreOptions;
  /** Told while the store is brought up to date. */
  readonly onStoreProgress: WorkOptions["onProgress"];
  readonly clock: Clock;
  readonly onTrace: ((event: TraceEvent) => void) | undefined;
  readonly sessionWorkers: number;
  readonly drainMs: number;
}

export function resolveOptions(options: TroupeOptions, clock: Clock): ResolvedOptions {
  if (typeof options !== "object" || options === null) throw invalid("createTroupe takes an options object");
  const hookDeadlineMs = positive(options.hookDeadlineMs, 5_000, "hookDeadlineMs");
  const { definitions, ...tools } = resolveTools(options.tools ?? {});
  const store = resolveStore(options.store ?? { memory: true });
  const { journal = "path" in store } = options;
  if (typeof journal !== "boolean") throw invalid("journal must be true or false");
  const { onTrace, protocol, development = process.env.NODE_ENV !== "production" } = options;
  if (onTrace !== undefined && typeof onTrace !== "function") throw invalid("onTrace must be a function");
  return {
    worker: {
      model: options.model === undefined ? undefined : resolveModel(options.model, "model"),
      models: resolveModels(options.models ?? {}),
      prompt: options.prompt === undefined ? undefined : checkPromptLayer(options.prompt),
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
      }),
      mailboxLimit: positive(options.mailboxLimit, 64, "mailboxLimit"),
      residency: resolveResidency(options),
      journals: journal,
      runtimeId: clock.uuid(),
      standardProtocol: protocol === undefined,
      tracing: onTrace !== undefined,
      development,
    },
    attachments: resolveAttachments(options.attachments ?? {}),
    plugins: [
      ...resolvePlugins(options.plugins ?? [], { hookDeadlineMs, development }),
      ...(protocol === undefined ? [] : [resolveProtocol(protocol, { hookDeadlineMs, development })]),
    ],
    hostTools: definitions,
    store,
    onStoreProgress: options.store?.onProgress,
    clock,
    onTrace,
    sessionWorkers: positive(options.sessionWorkers, Math.max(2, availableParallelism()), "sessionWorkers"),
    drainMs: positive(options.drainMs, 5_000, "drainMs"),
  };
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

function isShare(value: unknown): value is number {
  return typeof value === "number" && value > 0 && value <= 1;
}

/** A module URL from what a host writes: a URL, a `file:` string, an absolute path or one that starts with a dot. */
function moduleUrl(module: unknown, what: string): string {
  if (module instanceof URL) return module.href;
  if (typeof module === "string") {
    if (/^(file|data):/.test(module)) return module;
    if (isAbsolute(module) || module.startsWith(".")) return pathToFileURL(resolve(module)).href;
  }
  const hint = 'new URL("./x.js", import.meta.url), or import.meta.resolve("package") for a package';
  throw invalid(`${what} needs a module, named by URL: ${hint}`);
}

function resolveModel(model: URL | string | ModelSource, what: string): ModelSource {
  if (model instanceof URL || typeof model === "string") return { kind: "module", url: moduleUrl(model, what) };
  if (typeof model === "object" && model !== null && (model.kind === "scripted" || model.kind === "module"))
    return model;
  throw invalid(
    `${what} must be the URL of a module or a script; a live model object cannot cross to the session workers`,
  );
}

function resolveModels(models: NonNullable<TroupeOptions["models"]>): Record<string, ModelSource> {
  if (typeof models !== "object" || models === null) throw invalid("models must be an object of models by name");
  return Object.fromEntries(
    Object.entries(models).map(([name, model]) => {
      if (name === "") throw invalid("a model in models needs a name");
      return [name, resolveModel(model, `models.${name}`)];
    }),
  );
}

function resolveAttachments({ urls, maxBytes, ...unknown }: Partial<AttachmentPolicy>): AttachmentPolicy {
  const [stranger] = Object.keys(unknown);
  if (stranger !== undefined) throw invalid(`attachments has urls and maxBytes, but no ${stranger}`);
  const named = Array.isArray(urls) && urls.every((host) => typeof host === "string");
  if (urls !== undefined && typeof urls !== "boolean" && !named)
    throw invalid("attachments.urls must be true, false or a list of host names");
  return {
    urls: urls ?? DEFAULT_ATTACHMENTS.urls,
    maxBytes: positive(maxBytes, DEFAULT_ATTACHMENTS.maxBytes, "attachments.maxBytes"),
  };
}

interface PluginDefaults {
  readonly hookDeadlineMs: number;
  readonly development: boolean;
}

function resolvePlugins(plugins: Iterable<PluginEntry>, defaults: PluginDefaults): ResolvedPlugin[] {
  if (typeof plugins !== "object" || plugins === null || !(Symbol.iterator in plugins))
    throw invalid("plugins must be a list of { module, options?, tier? }");
  return [...plugins].map((entry, index) => resolvePlugin(entry, `plugins[${index}]`, defaults));
}

/** A protocol is part of every turn, so it runs where the turn does. */
function resolveProtocol(entry: PluginEntry, defaults: PluginDefaults): ResolvedPlugin {
  if (entry?.tier !== undefined && entry.tier !== "inline") throw invalid('protocol.tier can only be "inline"');
  return resolvePlugin({ ...entry, tier: "inline" }, "protocol", defaults);
}

function resolvePlugin(
  entry: PluginEntry,
  what: string,
  { hookDeadlineMs, development }: PluginDefaults,
): ResolvedPlugin {
  const tier = entry?.tier ?? "worker";
  if (tier !== "worker" && tier !== "inline")
    throw invalid(`${what}.tier must be "worker" or "inline", not ${String(tier)}`);
  try {
    structuredClone(entry.options);
  } catch (cause) {
    throw new TroupeError(
      "plugin_options_invalid",
      `${what}.options must be plain data: they cross to another thread.`,
      { cause },
    );
  }
  return {
    module: moduleUrl(entry?.module, what),
    options: entry.options,
    tier,
    deadlineMs: positive(entry.deadlineMs, hookDeadlineMs, `${what}.deadlineMs`),
    blockedMs: positive(entry.blockedMs, 1_000, `${what}.blockedMs`),
    lazy: entry.lazy === true,
    permissions: entry.permissions ?? {},
    optionalInChildren: entry.optionalInChildren === true,
    development,
  };
}

function resolveTools(tools: NonNullable<TroupeOptions["tools"]>) {
  const definitions = new Map<string, ToolDefinition>();
  const hostTools: WorkerSettings["hostTools"][number][] = [];
  const poolTools: WorkerSettings["poolTools"][number][] = [];
  for (const [name, tool] of Object.entries(tools)) {
    if (typeof tool === "object" && tool !== null && "module" in tool) {
      poolTools.push({ name, module: moduleUrl(tool.module, `tool ${name}`), ...limit(tool.timeoutMs, name) });
      continue;
    }
    checkToolDefinition(name, tool);
    definitions.set(name, tool);
    const spec = { name, description: tool.description, inputSchema: jsonSchemaOf(tool.inputSchema, `tool ${name}`) };
    hostTools.push({ spec, ...toolPolicy(`Tool ${name}`, tool) });
  }
  return { definitions, hostTools, poolTools };
}

function limit(timeoutMs: number | undefined, name: string): { timeoutMs?: number } {
  return timeoutMs === undefined ? {} : { timeoutMs: positive(timeoutMs, timeoutMs, `the timeoutMs of tool ${name}`) };
}

function resolveStore(store: NonNullable<TroupeOptions["store"]>): StoreOptions {
  if (typeof store === "object" && store !== null) {
    const { commitBudget, onProgress } = store;
    if (onProgress !== undefined && typeof onProgress !== "function")
      throw invalid("store.onProgress must be a function");
    const budget = commitBudget !== undefined && {
      commitBudget: {
        bytes: positive(commitBudget.bytes, COMMIT_BUDGET.bytes, "store.commitBudget.bytes"),
        nodes: positive(commitBudget.nodes, COMMIT_BUDGET.nodes, "store.commitBudget.nodes"),
      },
    };
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

function positive(value: number | undefined, fallback: number, what: string): number {
  if (value === undefined) return fallback;
  if (!Number.isSafeInteger(value) || value < 1)
    throw invalid(`${what} must be a whole number from 1, not ${String(value)}`);
  return value;
}

function positiveOrNull(value: number | null | undefined, fallback: number | null, what: string): number | null {
  if (value === undefined || value === null) return value === null ? null : fallback;
  return positive(value, value, what);
}

function text(value: string | undefined, what: string): string {
  if (value === undefined) return "";
  if (typeof value !== "string") throw invalid(`${what} must be a string`);
  return value;
}

function invalid(why: string): TroupeError {
  return new TroupeError("invalid_options", `${why}.`);
}
