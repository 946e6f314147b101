import {
  type Authority,
  PromptCache,
  type SubagentContext,
  type ToolSpec,
  type ToolState,
} from "../../kernel/index.js";
import type { Preamble, ProtocolTurnOptions, TurnFacts } from "../../plugin/index.js";
import type { RegisteredTool, SessionTools, ToolAbsence, ToolLookup } from "../../tools/index.js";
import { decode, encode } from "../../wire/index.js";
import { readPreamble, readRemovals, type SessionHooks, type Surface, type Surfaces } from "../plugins/index.js";
import { COMPONENT, type StoredComponent } from "../stored/index.js";
import type { SessionProtocol } from "./session-protocol.js";

/** The tools a turn has, and what the protocol makes of them. */
export class TurnCatalog implements ToolLookup {
  readonly preamble: Preamble;
  readonly specs: readonly ToolSpec[];
  readonly #tools: ToolLookup;
  readonly #removed: Removed;
  #names: readonly string[] | undefined;

  constructor(parts: {
    readonly tools: ToolLookup;
    readonly specs: readonly ToolSpec[];
    readonly removed: Removed;
    readonly preamble: Preamble;
  }) {
    this.#tools = parts.tools;
    this.#removed = parts.removed;
    this.specs = parts.specs;
    this.preamble = parts.preamble;
  }

  get names(): readonly string[] {
    this.#names ??= this.specs.map(({ name }) => name);
    return this.#names;
  }

  /** The catalog of one model call that is offered only some of the tools. */
  only(names: readonly string[]): TurnCatalog {
    const offered = new Set(names);
    const isOffered = ({ name }: ToolSpec) => offered.has(name);
    const specs = this.specs.filter(isOffered);
    return new TurnCatalog({
      tools: this.#tools,
      specs,
      removed: new Map([
        ...this.names.filter((name) => !offered.has(name)).map((name) => [name, undefined] as const),
        ...this.#removed,
      ]),
      preamble: { ...this.preamble, toolSpecs: this.preamble.toolSpecs.filter(isOffered) },
    });
  }

  get(name: string): RegisteredTool | undefined {
    return this.#removed.has(name) ? undefined : this.#tools.get(name);
  }

  /** The plugin that took a tool out of the catalog. */
  removedBy(name: string): string | undefined {
    return this.#removed.get(name);
  }

  /** The plugin that brings a tool; undefined for the host's and the pool's. */
  ownerOf(name: string): string | undefined {
    const home = this.#tools.get(name)?.home;
    return home?.kind === "plugin" ? home.pluginId : undefined;
  }

  whyNot(name: string): ToolAbsence | undefined {
    return this.#removed.has(name) ? "unavailable" : this.#tools.whyNot?.(name);
  }
}

/** The tools of a call as it was recorded: no others, and of those what can be called now. */
class RecordedTools implements ToolLookup {
  readonly #tools: ToolLookup;
  readonly #names: ReadonlySet<string>;

  constructor(tools: ToolLookup, names: ReadonlySet<string>) {
    this.#tools = tools;
    this.#names = names;
  }

  get(name: string): RegisteredTool | undefined {
    return this.#names.has(name) ? this.#tools.get(name) : undefined;
  }

  /** Whoever was offered it may know why: the tool is gone, and not a slip of the model. */
  whyNot(name: string): ToolAbsence | undefined {
    const why = this.#tools.whyNot?.(name);
    return this.#names.has(name) && why === "unknown" ? "gone" : (why ?? "unavailable");
  }
}

/** The tools that are not offered, by name, with the plugin that took each away; undefined where it was a setting. */
type Removed = ReadonlyMap<string, string | undefined>;

/** What a catalog depends on. */
interface CatalogKey {
  readonly overlayRevision: number;
  readonly toolGeneration: number;
  /** Of every plugin; empty when no contributor and no driver depends on them. */
  readonly pluginRevisions: string;
  readonly turnOptions: ProtocolTurnOptions | undefined;
}

/** Catalogs kept: a session that goes back and forth between two states finds both. */
const MAX_KEPT = 4;
const NOTHING_REMOVED: Removed = new Map();
const CONTRIBUTOR = "tool_catalog_contributor";

/** What a catalog is made of. */
interface CatalogSources {
  readonly tools: SessionTools;
  readonly hooks: SessionHooks;
  readonly authority: Authority;
  readonly protocol: SessionProtocol;
  surface: Surface;
  readonly services: { readonly surfaces: Pick<Surfaces, "extensions"> };
}

/** A session's tool catalogs: made when something they depend on changed, otherwise the same object. */
export class SessionCatalog {
  readonly #session: CatalogSources;
  /** System prompts that were made of these catalogs. */
  readonly prompts = new PromptCache();
  #kept: { readonly key: CatalogKey; readonly catalog: TurnCatalog }[] = [];

  constructor(session: CatalogSources) {
    this.#session = session;
  }

  /** The catalog as it is now, at once when it is known or nobody contributes to it. An error is not kept. */
  resolve(
    facts: TurnFacts,
    turnOptions: ProtocolTurnOptions | undefined,
    signal: AbortSignal,
  ): TurnCatalog | Promise<TurnCatalog> {
    const { tools, hooks } = this.#session;
    const contributed = hooks.has(CONTRIBUTOR);
    const key: CatalogKey = {
      overlayRevision: tools.overlayRevision,
      toolGeneration: tools.generation,
      pluginRevisions: this.#pluginRevisions(),
      turnOptions,
    };
    // A contributor that was called since may say something else now, and asking it is as quick as finding out.
    const kept = hooks.needCapture(CONTRIBUTOR) ? undefined : this.#kept.find((entry) => sameKey(entry.key, key));
    if (kept !== undefined) return kept.catalog;
    if (!contributed) return this.#keep(key, this.#build(NOTHING_REMOVED, turnOptions));
    return this.#contributed(key, facts, signal);
  }

  /**
   * The catalog of a call as it was recorded, over the tools as they are now: one that is gone by now is offered as it
   * was, and cannot be called. Nobody is asked.
   */
  recorded(
    { tools: specs, offered = specs }: { readonly tools: readonly ToolSpec[]; readonly offered?: readonly ToolSpec[] },
    turnOptions: ProtocolTurnOptions | undefined,
  ): TurnCatalog {
    const { tools } = this.#session;
    const names = new Set(specs.map(({ name }) => name));
    const preamble = { ...this.#preamble(specs, turnOptions), toolSpecs: offered };
    return new TurnCatalog({ tools: new RecordedTools(tools, names), specs, removed: NOTHING_REMOVED, preamble });
  }

  /** What the catalog depends on, as a text: another one when it may be another catalog. */
  version(): string {
    const { tools, hooks } = this.#session;
    const touched = hooks.needCapture(CONTRIBUTOR);
    return `${tools.generation}:${tools.overlayRevision}:${this.#pluginRevisions()}:${touched}`;
  }

  /** Of every plugin; empty when no contributor and no driver depends on them. */
  #pluginRevisions(): string {
    const { hooks, protocol } = this.#session;
    return hooks.has(CONTRIBUTOR) || protocol.driver.readsState !== false ? hooks.revisionsNow() : "";
  }

  /** What is known of the session when it works for another one. */
  get subagent(): SubagentContext | undefined {
    return this.#session.authority.subagent;
  }

  get surface(): Surface {
    return this.#session.surface;
  }

  /** The tools are composed anew from what plugins registered, and what was made of them is forgotten. */
  refresh(surface: Surface): void {
    this.#session.surface = surface;
    this.#session.tools.rebind(surface.registry);
    this.invalidate();
  }

  /** Forgets every catalog and every prompt: they are made anew when they are next needed. */
  invalidate(): void {
    this.#kept = [];
    this.prompts.clear();
  }

  /** Kept under the state its contributors answered from; state that cannot be captured is reported by the commit. */
  async #contributed(key: CatalogKey, facts: TurnFacts, signal: AbortSignal): Promise<TurnCatalog> {
    const { hooks } = this.#session;
    const catalog = this.#build(await this.#removals(facts, signal), key.turnOptions);
    const [captured] = await Promise.allSettled([hooks.capture(CONTRIBUTOR)]);
    if (captured.status === "rejected") return catalog;
    return this.#keep({ ...key, pluginRevisions: hooks.revisionsNow() }, catalog);
  }

  #keep(key: CatalogKey, catalog: TurnCatalog): TurnCatalog {
    this.#kept = [{ key, catalog }, ...this.#kept].slice(0, MAX_KEPT);
    return catalog;
  }

  #build(removed: Removed, turnOptions: ProtocolTurnOptions | undefined): TurnCatalog {
    const { tools } = this.#session;
    const all = tools.specs();
    const specs = removed.size === 0 ? all : all.filter(({ name }) => !removed.has(name));
    return new TurnCatalog({ tools, specs, removed, preamble: this.#preamble(specs, turnOptions) });
  }

  #preamble(specs: readonly ToolSpec[], turnOptions: ProtocolTurnOptions | undefined): Preamble {
    const { protocol, services, surface } = this.#session;
    const preamble = protocol.driver.buildPreamble({
      tools: specs,
      extensions: services.surfaces.extensions,
      triggers: surface.triggers.all,
      contributions: [],
      turnOptions,
    });
    return readPreamble(preamble, protocol.ownerOf("driver"));
  }

  /** Contributors all see the same catalog and can only take away; what the session's authority hides is not in it. */
  async #removals(facts: TurnFacts, signal: AbortSignal): Promise<Removed> {
    const { tools, hooks, authority, services } = this.#session;
    const names = tools.specs().map(({ name }) => name);
    const removed = new Map<string, string>();
    await hooks.each(
      CONTRIBUTOR,
      () => ({
        ...facts,
        tools: names,
        hiddenTools: authority.hiddenTools ?? [],
        subagent: authority.subagent,
        extensions: services.surfaces.extensions,
      }),
      (answer, pluginId) => {
        for (const name of readRemovals(answer, pluginId)) removed.set(name, pluginId);
      },
      // The answer brings the state it was made from along.
      { signal, capture: true },
    );
    return removed;
  }
}

function sameKey(a: CatalogKey, b: CatalogKey): boolean {
  return (Object.keys(a) as (keyof CatalogKey)[]).every((part) => a[part] === b[part]);
}

/** A session's tools as far as they differ from the registered ones: dirty from the generation on that is not stored. */
export class ToolsComponent implements StoredComponent {
  readonly name = COMPONENT.tools;
  readonly #tools: SessionTools;
  #written: number;

  constructor(tools: SessionTools) {
    this.#tools = tools;
    this.#written = tools.generation;
  }

  get dirty(): boolean {
    return this.#tools.generation !== this.#written;
  }

  encode(): Uint8Array {
    return encode(this.#tools.exportState());
  }

  /** The tools may have changed since these bytes were encoded. */
  written(bytes: Uint8Array): void {
    this.#written = decode<ToolState>(bytes).generation;
  }
}
