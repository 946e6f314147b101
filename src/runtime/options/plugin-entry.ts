import { availableParallelism } from "node:os";
import { isDeepStrictEqual } from "node:util";
import { type FieldsOf, pluginOptionsInvalid } from "../../kernel/index.js";
import type { FailurePolicies } from "../../session/index.js";
import { type OnFailure, resolveOnFailure } from "./on-failure.js";
import { checkFields, flag, invalid, kindOf, moduleUrl, positive } from "./option-checks.js";
import { type Permissions, resolvePermissions } from "./permissions.js";

/** A plugin as a host names it: by the module that default-exports it. */
export interface PluginEntry {
  readonly module: URL | string;
  readonly options?: unknown;
  /** `worker` (default): on plugin hosts, threads of their own. `inline`: trusted, in the session worker, no hop. */
  readonly tier?: "worker" | "inline";
  /** How long one hook call may take. Default: the runtime's `hookDeadlineMs`. */
  readonly deadlineMs?: number;
  /**
   * Plugins with the same name share their threads, and what one of them does to its thread the others feel. For plugins of
   * one publisher. Default: a plugin is a group of its own.
   */
  readonly group?: string;
  /**
   * `shared` (default): sessions share the threads of the plugin. `session`: each session has a thread of its own for it.
   * `trusted`: as `shared`, and a permission that this release of Node.js, Bun or Deno cannot enforce is done without;
   * otherwise it refuses the start with `isolation_unenforceable`.
   */
  readonly isolation?: "shared" | "session" | "trusted";
  /**
   * Over how many threads its sessions may be spread when it is busy. Default: as many as there are cores. What a module
   * keeps outside `state` is then each thread's own; 1 keeps it in one place.
   */
  readonly shards?: number;
  /** Megabytes of JavaScript heap each of its threads may have; a thread with more is replaced. Default 256. */
  readonly heapMb?: number;
  /** Megabytes outside of the heap (buffers) each of its threads may hold after a call. Default: as many as `heapMb`. */
  readonly externalMb?: number;
  /**
   * How long one piece of its synchronous work may hold a thread before that is replaced, from 50. Time in which the thread
   * waits for a processor does not count. Default 250 on Linux; 1,000 elsewhere, where that time cannot be told apart.
   */
  readonly blockedMs?: number;
  /** How long loading it may take: importing its module, with every top-level await, and checking it. Default 30,000. */
  readonly loadMs?: number;
  /** Its thread starts with the first call that needs it; when the runtime starts it is loaded only to be looked at. Default false. */
  readonly lazy?: boolean;
  /** What an isolated plugin may do beyond computing; default nothing. `"all"` takes the seat belt off. */
  readonly permissions?: Permissions | "all";
  /** A child session may do without it (`authority.withoutPlugins`). Default: what watches the parent watches the child. */
  readonly optionalInChildren?: boolean;
  /** What becomes of a hook that fails, for all of its hooks or by name. Default: what each hook's kind does by itself. */
  readonly onFailure?: OnFailure;
  /** Sessions go on without it once it is given up, and every turn says so. Default false: their turns fail. */
  readonly optional?: boolean;
}

/** Which there are: one that is forgotten here does not compile, and any other is refused. */
const PLUGIN_OPTIONS: FieldsOf<PluginEntry> = {
  module: true,
  options: true,
  tier: true,
  deadlineMs: true,
  group: true,
  isolation: true,
  shards: true,
  heapMb: true,
  externalMb: true,
  blockedMs: true,
  loadMs: true,
  lazy: true,
  permissions: true,
  optionalInChildren: true,
  onFailure: true,
  optional: true,
};

export interface ResolvedPlugin extends Required<Omit<PluginEntry, "group" | "onFailure">> {
  readonly isProtocol?: boolean;
  readonly group: string | undefined;
  readonly module: string;
  readonly onFailure: FailurePolicies;
  readonly development: boolean;
}

interface PluginDefaults {
  readonly hookDeadlineMs: number;
  readonly development: boolean;
}

export function resolvePlugins(plugins: Iterable<PluginEntry>, defaults: PluginDefaults): ResolvedPlugin[] {
  if (typeof plugins !== "object" || plugins === null || !(Symbol.iterator in plugins))
    throw invalid("plugins must be a list of { module, options?, tier? }");
  return [...checkGroups([...plugins].map((entry, index) => resolvePlugin(entry, `plugins[${index}]`, defaults)))];
}

/** A protocol is part of every turn, so it runs where the turn does. */
export function resolveProtocol(entry: PluginEntry, defaults: PluginDefaults): ResolvedPlugin {
  if (entry?.tier !== undefined && entry.tier !== "inline") throw invalid('protocol.tier can only be "inline"');
  return { ...resolvePlugin({ ...entry, tier: "inline" }, "protocol", defaults), isProtocol: true };
}

function resolvePlugin(
  entry: PluginEntry,
  what: string,
  { hookDeadlineMs, development }: PluginDefaults,
): ResolvedPlugin {
  if (typeof entry !== "object" || entry === null)
    throw invalid(
      `${what} must be { module: new URL("./plugin.js", import.meta.url), options? }, not ${kindOf(entry)}`,
    );
  if (!("module" in entry) && "hooks" in entry)
    throw invalid(`${what} is a plugin itself; name its module instead, because another thread imports it: { module }`);
  checkFields(entry, PLUGIN_OPTIONS, what);
  const tier = entry.tier ?? "worker";
  if (tier !== "worker" && tier !== "inline")
    throw invalid(`${what}.tier must be "worker" or "inline", not ${String(tier)}`);
  try {
    structuredClone(entry.options);
  } catch (cause) {
    throw pluginOptionsInvalid(what, "they must be plain data, because they cross to another thread", { cause });
  }
  return {
    module: moduleUrl(entry.module, what),
    options: entry.options,
    tier,
    deadlineMs: positive(entry.deadlineMs, hookDeadlineMs, `${what}.deadlineMs`),
    group: resolveGroup(entry.group, what),
    isolation: resolveIsolation(entry.isolation, what),
    shards: positive(entry.shards, availableParallelism(), `${what}.shards`),
    heapMb: positive(entry.heapMb, 256, `${what}.heapMb`),
    externalMb: positive(entry.externalMb, positive(entry.heapMb, 256, `${what}.heapMb`), `${what}.externalMb`),
    blockedMs: Math.max(
      LEAST_BLOCKED_MS,
      positive(entry.blockedMs, process.platform === "linux" ? 250 : 1_000, `${what}.blockedMs`),
    ),
    loadMs: positive(entry.loadMs, 30_000, `${what}.loadMs`),
    lazy: flag(entry.lazy, false, `${what}.lazy`),
    permissions: resolvePermissions(entry.permissions, `${what}.permissions`),
    optionalInChildren: flag(entry.optionalInChildren, false, `${what}.optionalInChildren`),
    onFailure: resolveOnFailure(entry.onFailure, `${what}.onFailure`),
    optional: flag(entry.optional, false, `${what}.optional`),
    development,
  };
}

/** Threads are looked at every 20 ms: less would be chance. */
const LEAST_BLOCKED_MS = 50;

function resolveGroup(group: unknown, what: string): string | undefined {
  if (group === undefined || (typeof group === "string" && group !== "")) return group;
  throw invalid(`${what}.group must be a name that plugins share`);
}

function resolveIsolation(isolation: unknown, what: string): ResolvedPlugin["isolation"] {
  if (isolation === undefined) return "shared";
  if (isolation === "shared" || isolation === "session" || isolation === "trusted") return isolation;
  throw invalid(`${what}.isolation must be "shared", "session" or "trusted", not ${String(isolation)}`);
}

/** One thread has one set of permissions: what one plugin of a group is denied must not be had through another. */
function checkGroups(plugins: readonly ResolvedPlugin[]): readonly ResolvedPlugin[] {
  const first = new Map<string, ResolvedPlugin>();
  for (const plugin of plugins) {
    if (plugin.group === undefined || plugin.tier === "inline") continue;
    const other = first.get(plugin.group);
    first.set(plugin.group, other ?? plugin);
    if (other === undefined || isDeepStrictEqual(other.permissions, plugin.permissions)) continue;
    throw invalid(
      `the plugins of the group ${plugin.group} have different permissions: give them the same, or no group`,
    );
  }
  return plugins;
}
