import { availableParallelism } from "node:os";
import { isAbsolute, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { COMMIT_BUDGET, checkConfig, type SessionConfig, type ToolSpec, TroupeError } from "../kernel/index.js";
import type { ModelSource } from "../model/index.js";
import {
  checkToolDefinition,
  jsonSchemaOf,
  type ToolDefinition,
  type ToolPolicy,
  toolPolicy,
} from "../plugin/index.js";
import type { TraceEvent } from "../session/index.js";
import type { StoreOptions } from "../store/index.js";
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
  /** Default `{ memory: true }`: gone with the process. */
  readonly store?: StoreOptions;
  /** The first part of every system prompt. */
  readonly instructions?: string;
  /** Session workers. Default: as many as cores, two at least. */
  readonly sessionWorkers?: number;
  /** Threads of each session worker's tool pool. Default 2. */
  readonly toolThreads?: number;
  /** Default 5,000. */
  readonly hookDeadlineMs?: number;
  /** Hooks of one kind: one plugin after another (default), or all at once and folded in registration order. */
  readonly hookDispatch?: "sequential" | "concurrent";
  /** Model calls one turn may make. Default 32. */
  readonly maxSteps?: number;
  /** How much the model can read; told to context transforms. Default: not known. */
  readonly maxContextTokens?: number;
  /** Turns that may wait for one session. Default 64. */
  readonly mailboxLimit?: number;
  /** How long `close()` lets turns finish before it cancels them. Default 5,000. */
  readonly drainMs?: number;
}

export interface ResolvedPlugin {
  readonly module: string;
  readonly options: unknown;
  readonly tier: "worker" | "inline";
  readonly deadlineMs: number;
  readonly blockedMs: number;
  readonly permissions: Permissions | "all";
  readonly optionalInChildren: boolean;
  readonly development: boolean;
}

/** Options checked and made plain: what can cross a thread, and the host's closures beside it. */
export interface ResolvedOptions {
  readonly model: ModelSource | undefined;
  readonly plugins: readonly ResolvedPlugin[];
  readonly hostTools: ReadonlyMap<string, ToolDefinition>;
  readonly hostToolSpecs: readonly (ToolPolicy & { readonly spec: ToolSpec })[];
  readonly poolTools: readonly (ToolPolicy & { readonly name: string; readonly module: string })[];
  readonly store: StoreOptions;
  readonly hookDispatch: "sequential" | "concurrent";
  readonly standardProtocol: boolean;
  readonly onTrace: ((event: TraceEvent) => void) | undefined;
  readonly development: boolean;
  readonly config: SessionConfig;
  readonly sessionWorkers: number;
  readonly toolThreads: number;
  readonly mailboxLimit: number;
  readonly drainMs: number;
}

export function resolveOptions(options: TroupeOptions): ResolvedOptions {
  if (typeof options !== "object" || options === null) throw invalid("createTroupe takes an options object");
  const hookDeadlineMs = positive(options.hookDeadlineMs, 5_000, "hookDeadlineMs");
  const tools = resolveTools(options.tools ?? {});
  const { onTrace, protocol, development = process.env.NODE_ENV !== "production" } = options;
  if (onTrace !== undefined && typeof onTrace !== "function") throw invalid("onTrace must be a function");
  return {
    model: resolveModel(options.model),
    plugins: [
      ...resolvePlugins(options.plugins ?? [], { hookDeadlineMs, development }),
      ...(protocol === undefined ? [] : [resolveProtocol(protocol, { hookDeadlineMs, development })]),
    ],
    standardProtocol: protocol === undefined,
    onTrace,
    development,
    ...tools,
    store: resolveStore(options.store ?? { memory: true }),
    hookDispatch: resolveDispatch(options.hookDispatch),
    config: checkConfig({
      instructions: text(options.instructions, "instructions"),
      maxSteps: positive(options.maxSteps, 32, "maxSteps"),
      maxContextTokens:
        options.maxContextTokens === undefined ? null : positive(options.maxContextTokens, 1, "maxContextTokens"),
      metadata: {},
    }),
    sessionWorkers: positive(options.sessionWorkers, Math.max(2, availableParallelism()), "sessionWorkers"),
    toolThreads: positive(options.toolThreads, 2, "toolThreads"),
    mailboxLimit: positive(options.mailboxLimit, 64, "mailboxLimit"),
    drainMs: positive(options.drainMs, 5_000, "drainMs"),
  };
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

function resolveModel(model: TroupeOptions["model"]): ModelSource | undefined {
  if (model === undefined) return undefined;
  if (model instanceof URL || typeof model === "string") return { kind: "module", url: moduleUrl(model, "model") };
  if (typeof model === "object" && model !== null && (model.kind === "scripted" || model.kind === "module"))
    return model;
  throw invalid(
    "model must be the URL of a module or a script; a live model object cannot cross to the session workers",
  );
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
    permissions: entry.permissions ?? {},
    optionalInChildren: entry.optionalInChildren === true,
    development,
  };
}

function resolveTools(
  tools: NonNullable<TroupeOptions["tools"]>,
): Pick<ResolvedOptions, "hostTools" | "hostToolSpecs" | "poolTools"> {
  const hostTools = new Map<string, ToolDefinition>();
  const hostToolSpecs: (ToolPolicy & { spec: ToolSpec })[] = [];
  const poolTools: (ToolPolicy & { name: string; module: string })[] = [];
  for (const [name, tool] of Object.entries(tools)) {
    if (typeof tool === "object" && tool !== null && "module" in tool) {
      poolTools.push({ name, module: moduleUrl(tool.module, `tool ${name}`), ...limit(tool.timeoutMs, name) });
      continue;
    }
    checkToolDefinition(name, tool);
    hostTools.set(name, tool);
    const spec = { name, description: tool.description, inputSchema: jsonSchemaOf(tool.inputSchema, `tool ${name}`) };
    hostToolSpecs.push({ spec, ...toolPolicy(`Tool ${name}`, tool) });
  }
  return { hostTools, hostToolSpecs, poolTools };
}

function limit(timeoutMs: number | undefined, name: string): { timeoutMs?: number } {
  return timeoutMs === undefined ? {} : { timeoutMs: positive(timeoutMs, timeoutMs, `the timeoutMs of tool ${name}`) };
}

function resolveStore(store: StoreOptions): StoreOptions {
  if (typeof store === "object" && store !== null) {
    const { commitBudget } = store;
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

function text(value: string | undefined, what: string): string {
  if (value === undefined) return "";
  if (typeof value !== "string") throw invalid(`${what} must be a string`);
  return value;
}

function invalid(why: string): TroupeError {
  return new TroupeError("invalid_options", `${why}.`);
}
