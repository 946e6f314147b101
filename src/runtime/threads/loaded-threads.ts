import { fileURLToPath } from "node:url";
import { type Clock, ignore, type Timer } from "../../async/index.js";
import { asTroupeError } from "../../kernel/index.js";
import { type PluginManifest, pluginLoadTimeout } from "../../plugin/index.js";
import type { PluginHostService } from "../../session/index.js";
import { newStage, type ThreadRights } from "../../wire/index.js";
import { packageRoot, type ResolvedPlugin, type ThreadPermissions } from "../options/index.js";
import { Thread } from "./threads.js";

/** A thread whose plugins are loaded. */
export interface LoadedThread {
  readonly thread: Thread<PluginHostService>;
  /** Where it says which call holds it. */
  readonly stage: Int32Array;
  readonly tid: number | undefined;
}

interface LoadParts {
  readonly clock: Clock;
  /** The thread's, in errors and for the operating system. */
  readonly name: string;
  readonly entries: readonly ResolvedPlugin[];
  readonly rights: ThreadRights;
  /** It runs behind all other threads. */
  readonly background?: boolean;
  /** Its plugins are strangers to each other, and are only asked what they are. */
  readonly describing?: boolean;
}

/** What a thread that runs these plugins of one group may do. `group`: the group's name; undefined: it has one plugin. */
export function rightsOf(
  permissions: ThreadPermissions,
  entries: readonly ResolvedPlugin[],
  group: string | undefined,
): ThreadRights {
  const [first] = entries as readonly [ResolvedPlugin, ...ResolvedPlugin[]];
  return permissions.rights({
    name: group === undefined ? `the plugin ${first.module}` : `the plugin group ${group}`,
    modules: entries.map(({ module }) => module),
    permissions: first.permissions,
    trusted: entries.every(({ isolation }) => isolation === "trusted"),
  });
}

/** Starts a thread and loads plugins there. */
export async function loadThread(
  parts: LoadParts,
): Promise<LoadedThread & { readonly manifests: readonly PluginManifest[] }> {
  const { clock, entries, background = false, describing = false } = parts;
  const { env, execArgv, denials } = parts.rights;
  const thread = new Thread<PluginHostService>({
    kind: "plugin",
    clock,
    name: parts.name,
    env,
    execArgv,
    resourceLimits: { maxOldGenerationSizeMb: Math.max(...entries.map(({ heapMb }) => heapMb)) },
  });
  const stage = newStage();
  const bounds = entries.map((entry) => entry.loadMs);
  // Strangers do not get each other's time: what takes longer is loaded alone.
  const loadMs = describing ? Math.min(...bounds) : Math.max(...bounds);
  const externalMb = Math.max(...entries.map((entry) => entry.externalMb));
  const plugins = entries.map(({ module, options }) => ({ module, options }));
  const development = entries[0]?.development === true;
  try {
    const { manifests, tid } = await thread.caller.to
      .load({ plugins, development, stage, externalMb, denials, background, describing }, { deadlineMs: loadMs })
      .catch((error: unknown) => {
        const isLate = asTroupeError(error, "plugin_failed").code === "call_timeout";
        throw isLate ? pluginLoadTimeout(plugins.map(({ module }) => module).join(", "), loadMs) : error;
      });
    return { thread, stage, tid, manifests };
  } catch (error) {
    await thread.terminate();
    throw error;
  }
}

/**
 * A thread with a group's plugins loaded that waits to take over: a group whose thread died, or is held by a call for
 * long, has the next one ready, so that replacing it takes milliseconds.
 */
export class SpareThread {
  /** Spares that may still be made; shared by all groups. */
  readonly #budget: { left: number };
  readonly #clock: Clock;
  readonly #load: () => Promise<LoadedThread>;
  #spare: Promise<LoadedThread | undefined> | undefined;
  #later: Timer | undefined;
  #isClosed = false;

  constructor(
    { spares, clock }: { readonly spares: { left: number }; readonly clock: Clock },
    load: () => Promise<LoadedThread>,
  ) {
    this.#budget = spares;
    this.#clock = clock;
    this.#load = load;
  }

  /** Has one loaded, now or so much later. */
  make(afterMs = 0): void {
    this.#later?.cancel();
    this.#later = afterMs === 0 ? undefined : this.#clock.timeout(afterMs, () => this.#make()).unref();
    if (afterMs === 0) this.#make();
  }

  #make(): void {
    if (this.#spare !== undefined || this.#budget.left === 0 || this.#isClosed) return;
    this.#budget.left--;
    const drop = () => {
      if (this.#spare !== spare) return undefined;
      this.#spare = undefined;
      this.#budget.left++;
      return undefined;
    };
    const spare: Promise<LoadedThread | undefined> = this.#load().then((loaded) => {
      // One that dies before it is taken is no spare.
      void loaded.thread.exited.then(drop);
      return loaded;
    }, drop);
    this.#spare = spare;
  }

  async take(): Promise<LoadedThread | undefined> {
    const taken = this.#spare;
    const spare = await taken;
    if (spare === undefined || this.#spare !== taken) return undefined;
    this.#spare = undefined;
    this.#budget.left++;
    return spare;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#later?.cancel();
    const spare = await this.#spare;
    await spare?.thread.terminate();
  }
}

/** What is needed of a group of plugins to ask what they are. */
interface Describable {
  readonly entries: readonly ResolvedPlugin[];
  rights(): ThreadRights;
  described(manifests: readonly PluginManifest[]): void;
  start(how: { readonly keepsThread: boolean }): Promise<void>;
}

/** Groups that are described on one thread at most: when one of them fails it, all of them are loaded alone. */
const MOST_TOGETHER = 32;

/**
 * Of groups that keep no thread, which can be described on one: those whose plugins lie in one package and whose threads
 * may do the same. They can read each other's files anyway; what one of them is told besides, its options, is no secret
 * from its own package. `atOnce`: threads that start at the same time.
 */
export function bundlesOf<G extends Describable>(groups: readonly G[], atOnce: number): G[][] {
  const alike = new Map<string, G[]>();
  for (const group of groups) {
    const { env, execArgv, denials } = group.rights();
    const roots = new Set(group.entries.map(({ module }) => publisherOf(module)));
    const key = JSON.stringify([[...roots], env, execArgv, denials?.paths, denials?.network]);
    alike.set(key, [...(alike.get(key) ?? []), group]);
  }
  return [...alike.values()].flatMap((each) => {
    const size = Math.min(MOST_TOGETHER, Math.ceil(each.length / atOnce));
    return Array.from({ length: Math.ceil(each.length / size) }, (_, n) => each.slice(n * size, (n + 1) * size));
  });
}

/**
 * Asks the plugins of these groups what they are, on one thread that ends again. Whatever goes wrong with any of them, each
 * is then loaded on a thread of its own, so that none suffers by another and errors say whose they are.
 */
export async function describeTogether(groups: readonly Describable[], clock: Clock): Promise<void> {
  const [first] = groups;
  if (first === undefined) return;
  if (groups.length > 1) {
    const entries = groups.flatMap((group) => group.entries);
    const name = `Description of ${entries.length} plugins`;
    const described = await loadThread({ clock, name, entries, rights: first.rights(), describing: true }).catch(
      ignore,
    );
    if (described !== undefined) {
      const manifests = [...described.manifests];
      for (const group of groups) group.described(manifests.splice(0, group.entries.length));
      await described.thread.terminate();
      return;
    }
  }
  for (const group of groups) await group.start({ keepsThread: false });
}

/** Where a module comes from: its package; a module that is no file is on its own. */
function publisherOf(module: string): string {
  return module.startsWith("file:") ? packageRoot(fileURLToPath(module)) : module;
}
