import {
  type Contributions,
  duplicateOperation,
  duplicateSingleton,
  type Extensions,
  type HookKind,
  type HookSpec,
  matchesTool,
  mergeExtensions,
  NO_CONTRIBUTIONS,
  type OperationSpec,
  type PluginManifest,
  PRIORITISED_KINDS,
  SINGLETON_KINDS,
  TriggerCatalog,
} from "../../plugin/index.js";
import { type RegisteredTool, registerTool, ToolRegistry } from "../../tools/index.js";
import type { PluginLink } from "./plugin-link.js";

/** `sequential`: one plugin after another. `concurrent`: all at once, folded in registration order. */
type HookDispatch = "sequential" | "concurrent";

/** A hook in the table: which plugin's, and which of that plugin's hooks of the kind. */
export interface RegisteredHook {
  readonly index: number;
  readonly kind: HookKind;
  readonly nth: number;
  readonly spec: HookSpec;
  /** No later hook of its plugin can change state before the next write: its answer brings the state along. */
  readonly captures: boolean;
  /** The same of what is asked before a turn's first model call: the state is written down with what it came to. */
  readonly endsPreparation: boolean;
}

const NOBODY: readonly RegisteredHook[] = [];

/** Which plugins registered which hook: a hook nobody registered costs one look-up and no message. */
export class HookTable {
  readonly links: readonly PluginLink[];
  readonly dispatch: HookDispatch;
  readonly #byKind = new Map<HookKind, RegisteredHook[]>();
  /** The `beforeTurn` hooks that may replace the input: they are asked ahead of every other hook, and not among theirs. */
  readonly replacing: RegisteredHook[] = [];
  /** Some stream hook is told when a block is over. */
  hasFinal = false;
  /** For kinds with matchers: the hooks that want a tool, found once per tool. */
  readonly #byTool = new Map<string, readonly RegisteredHook[]>();
  readonly #operations = new Map<string, { readonly index: number; readonly spec: OperationSpec }>();

  /** What each plugin contributes stands at its place in `contributions`. */
  constructor(links: readonly PluginLink[], contributions: readonly Contributions[], dispatch: HookDispatch) {
    this.links = links;
    this.dispatch = dispatch;
    contributions.forEach((contributed, index) => {
      this.#addHooks(index, contributed.hooks);
      this.#addOperations(index, contributed.operations);
    });
    for (const kind of PRIORITISED_KINDS) {
      this.#byKind.get(kind)?.sort((a, b) => (b.spec.priority ?? 0) - (a.spec.priority ?? 0));
    }
    for (const kind of SINGLETON_KINDS) {
      const [first, second] = this.registered(kind);
      if (first !== undefined && second !== undefined)
        throw duplicateSingleton(kind, this.#idOf(first.index), this.#idOf(second.index));
    }
  }

  /** Every operation, or every one of a plugin, by name. */
  operations(pluginId?: string): OperationSpec[] {
    const found = [...this.#operations.values()];
    const specs = found.flatMap(({ index, spec }) => ([undefined, this.#idOf(index)].includes(pluginId) ? spec : []));
    return specs.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  operation(name: string): { readonly index: number; readonly spec: OperationSpec } | undefined {
    return this.#operations.get(name);
  }

  /** The hooks of a kind, in the order they run; with a tool, only those that want it. */
  registered(kind: HookKind, toolName?: string): readonly RegisteredHook[] {
    const all = this.#byKind.get(kind) ?? NOBODY;
    if (toolName === undefined || all.length === 0) return all;
    const key = `${kind}:${toolName}`;
    let wanted = this.#byTool.get(key);
    if (wanted === undefined) {
      wanted = all.filter(({ spec }) => spec.tools === undefined || matchesTool(spec.tools, toolName));
      // Tool names come from models too: a model that makes them up must not fill the memory.
      if (this.#byTool.size >= MAX_TOOLS_KEPT) this.#byTool.clear();
      this.#byTool.set(key, wanted);
    }
    return wanted;
  }

  #addHooks(index: number, specs: readonly HookSpec[]): void {
    const stateful = this.links[index]?.manifest.stateful === true;
    const mayChangeLater = specs.some(({ kind }) => kind === "turn_finalized");
    const lastAfterTurn = specs.findLastIndex(({ kind }) => kind === "after_turn");
    // Asked at once, the last of several may answer before another one has changed anything.
    const inOrder =
      this.dispatch === "sequential" || specs.findIndex(({ kind }) => kind === "after_turn") === lastAfterTurn;
    // Hooks that may replace the input are asked ahead of the others.
    const others = specs.filter(({ replacesInput }) => replacesInput !== true);
    const left = PREPARING.some((kind) => others.some((spec) => spec.kind === kind)) ? others : specs;
    const preparing = PREPARING.findLast((kind) => left.some((spec) => spec.kind === kind));
    const lastPreparing = specs.findLastIndex((spec) => spec.kind === preparing && left.includes(spec));
    const counts = new Map<HookKind, number>();
    const isOnly = (spec: HookSpec) => specs.every((other) => other === spec || other.kind !== spec.kind);
    specs.forEach((spec, at) => {
      const { kind } = spec;
      const nth = counts.get(kind) ?? 0;
      counts.set(kind, nth + 1);
      const captures =
        stateful &&
        (at === lastAfterTurn ? inOrder && !mayChangeLater : TELLS_WHAT_IS_STORED.includes(kind) && isOnly(spec));
      const endsPreparation = stateful && at === lastPreparing && (this.dispatch === "sequential" || isOnly(spec));
      const hook: RegisteredHook = { index, kind, nth, spec, captures, endsPreparation };
      if (spec.replacesInput === true) this.replacing.push(hook);
      else this.#byKind.set(kind, [...(this.#byKind.get(kind) ?? NOBODY), hook]);
      if (spec.final === true) this.hasFinal = true;
    });
  }

  #addOperations(index: number, specs: readonly OperationSpec[]): void {
    for (const spec of specs) {
      const other = this.#operations.get(spec.name);
      if (other !== undefined) throw duplicateOperation(spec.name, this.#idOf(other.index), this.#idOf(index));
      this.#operations.set(spec.name, { index, spec });
    }
  }

  #idOf(index: number): string {
    return this.links[index]?.manifest.id ?? "";
  }
}

/** Kinds whose hooks are all called at once, and only watch. */
export type LifecycleKind =
  | "turn_finalized"
  | "turn_persisted"
  | "session_restored"
  | "session_config_changed"
  | "stream_finished";

/** What flows from one hook of these kinds into the next. */
export const CHAINED: readonly HookKind[] = ["context_transform", "assistant_stream", "assistant_response"];

const MAX_TOOLS_KEPT = 1024;

/** Asked before a turn's first model call, in this order. Contributors to the catalog always bring their state along. */
const PREPARING: readonly HookKind[] = ["context_transform", "before_turn", "prompt_contributor"];

/** Called behind a write: what they change is written next. */
const TELLS_WHAT_IS_STORED: readonly HookKind[] = ["turn_persisted", "session_config_changed", "session_restored"];

/** Everything the plugins contribute to a session, checked against each other. Shared by all sessions it is the same for. */
export interface Surface {
  readonly table: HookTable;
  readonly registry: ToolRegistry;
  readonly triggers: TriggerCatalog;
}

/** Surfaces a worker keeps. A plugin that registers something else for every session must not fill the memory. */
const MAX_KEPT = 64;

/** Makes surfaces of contributions. Sessions with the same contributions get the same one. */
export class Surfaces {
  readonly links: readonly PluginLink[];
  readonly extensions: Extensions;
  /** What a session has when no plugin registers anything for it alone. */
  readonly common: Surface;
  /** By id: plugins that are protocols, of which a session has one. The first is that of sessions whose agent names none. */
  readonly protocols: readonly string[];
  readonly #tools: readonly RegisteredTool[];
  readonly #dispatch: HookDispatch;
  /** What a session has from each plugin when no plugin registers anything for it alone. */
  readonly #usual: readonly Contributions[];
  readonly #kept = new Map<string, Surface>();
  #slots = 0;

  /** `tools`: those that are not of plugins. */
  constructor(
    links: readonly PluginLink[],
    tools: readonly RegisteredTool[],
    { dispatch, protocols = [] }: { readonly dispatch: HookDispatch; readonly protocols?: readonly string[] },
  ) {
    this.links = links;
    this.#tools = tools;
    this.#dispatch = dispatch;
    this.protocols = protocols;
    this.extensions = mergeExtensions(links.flatMap(({ manifest }) => manifest.extensions));
    const others = protocols.slice(1);
    this.#usual = this.manifests.map(({ id, contributions }) =>
      others.includes(id) ? NO_CONTRIBUTIONS : contributions,
    );
    this.common = this.#build(this.#usual);
  }

  /** The plugins that are no protocols, by id. */
  get plugins(): readonly string[] {
    return this.manifests.map(({ id }) => id).filter((id) => !this.protocols.includes(id));
  }

  /** The names of all tools that are known before a session has them registered, and whether there may be others. */
  get knownTools(): { readonly names: readonly string[]; readonly others: boolean } {
    const names = [...this.#tools, ...this.manifests.flatMap(({ contributions }) => contributions.tools)].map(
      ({ spec }) => spec.name,
    );
    return { names, others: this.manifests.some(({ registers }) => registers) };
  }

  get manifests(): readonly PluginManifest[] {
    return this.links.map(({ manifest }) => manifest);
  }

  /** The surface of these contributions, each at its plugin's place; with a list, of no other tools than these. */
  of(contributions: readonly Contributions[], allowed?: readonly string[]): Surface {
    const isUsual = allowed === undefined && contributions.every((each, index) => each === this.#usual[index]);
    if (isUsual) return this.common;
    const key = JSON.stringify(allowed === undefined ? contributions : [contributions, allowed]);
    let surface = this.#kept.get(key);
    if (surface === undefined) {
      surface = this.#build(contributions, allowed);
      if (this.#kept.size >= MAX_KEPT) this.#kept.clear();
      this.#kept.set(key, surface);
    }
    return surface;
  }

  /** A number for a slot, of whichever plugin. */
  nextSlot(): number {
    return ++this.#slots;
  }

  #build(contributions: readonly Contributions[], allowed?: readonly string[]): Surface {
    const owned = contributions.map((contributed, index) => ({
      pluginId: this.links[index]?.manifest.id ?? "",
      place: this.links[index]?.isHere && { isHere: true as const },
      contributed,
    }));
    const tools = owned.flatMap(({ pluginId, place, contributed }) =>
      contributed.tools.map(({ spec, onDemand, ...policy }) => ({
        ...registerTool(spec.name, { ...spec, ...policy }, { kind: "plugin", pluginId, ...place }),
        spec,
        ...(onDemand === true && { onDemand }),
      })),
    );
    return {
      table: new HookTable(this.links, contributions, this.#dispatch),
      registry: new ToolRegistry(
        [...this.#tools, ...tools].filter(({ spec }) => allowed === undefined || allowed.includes(spec.name)),
      ),
      triggers: new TriggerCatalog(
        owned.flatMap(({ pluginId, contributed }) => contributed.triggers.map((trigger) => ({ pluginId, trigger }))),
      ),
    };
  }
}
