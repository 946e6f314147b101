import { type Authority, PromptCache, type ToolSpec, type ToolState } from "../../kernel/index.js";
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
  readonly #removed: ReadonlySet<string>;
  #names: readonly string[] | undefined;

  constructor(parts: {
    readonly tools: ToolLookup;
    readonly specs: readonly ToolSpec[];
    readonly removed: ReadonlySet<string>;
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

  get(name: string): RegisteredTool | undefined {
    return this.#removed.has(name) ? undefined : this.#tools.get(name);
  }

  whyNot(name: string): ToolAbsence | undefined {
    return this.#removed.has(name) ? "unavailable" : this.#tools.whyNot?.(name);
  }
}

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
const NOTHING_REMOVED: ReadonlySet<string> = new Set();
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
    const { tools, hooks, protocol } = this.#session;
    const contributed = hooks.has(CONTRIBUTOR);
    const key: CatalogKey = {
      overlayRevision: tools.overlayRevision,
      toolGeneration: tools.generation,
      pluginRevisions: contributed || protocol.driver.readsState !== false ? hooks.revisionsNow() : "",
      turnOptions,
    };
    // A contributor that was called since may say something else now, and asking it is as quick as finding out.
    const kept = hooks.needCapture(CONTRIBUTOR) ? undefined : this.#kept.find((entry) => sameKey(entry.key, key));
    if (kept !== undefined) return kept.catalog;
    if (!contributed) return this.#keep(key, this.#build(NOTHING_REMOVED, turnOptions));
    return this.#contributed(key, facts, signal);
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

  #build(removed: ReadonlySet<string>, turnOptions: ProtocolTurnOptions | undefined): TurnCatalog {
    const { tools, protocol, services, surface } = this.#session;
    const all = tools.specs();
    const specs = removed.size === 0 ? all : all.filter(({ name }) => !removed.has(name));
    const preamble = protocol.driver.buildPreamble({
      tools: specs,
      extensions: services.surfaces.extensions,
      triggers: surface.triggers.all,
      contributions: [],
      turnOptions,
    });
    return new TurnCatalog({ tools, specs, removed, preamble: readPreamble(preamble, protocol.ownerOf("driver")) });
  }

  /** Contributors all see the same catalog and can only take away; what the session's authority hides is not in it. */
  async #removals(facts: TurnFacts, signal: AbortSignal): Promise<ReadonlySet<string>> {
    const { tools, hooks, authority, services } = this.#session;
    const names = tools.specs().map(({ name }) => name);
    const removed = new Set<string>();
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
        for (const name of readRemovals(answer, pluginId)) removed.add(name);
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
