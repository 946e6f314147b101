import { type Contributions, type Extensions, mergeExtensions, TriggerCatalog } from "../../plugin/index.js";
import { type RegisteredTool, registerTool, ToolRegistry } from "../../tools/index.js";
import { type HookDispatch, HookTable } from "./hook-table.js";
import type { PluginLink } from "./plugin-link.js";

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
  readonly #tools: readonly RegisteredTool[];
  readonly #dispatch: HookDispatch;
  readonly #kept = new Map<string, Surface>();
  #slots = 0;

  /** `tools`: those that are not of plugins. */
  constructor(links: readonly PluginLink[], tools: readonly RegisteredTool[], dispatch: HookDispatch) {
    this.links = links;
    this.#tools = tools;
    this.#dispatch = dispatch;
    this.extensions = mergeExtensions(links.flatMap(({ manifest }) => manifest.extensions));
    this.common = this.#build(links.map(({ manifest }) => manifest.contributions));
  }

  /** The surface of these contributions, each at its plugin's place. */
  of(contributions: readonly Contributions[]): Surface {
    if (contributions.every((contributed, index) => contributed === this.links[index]?.manifest.contributions))
      return this.common;
    const key = JSON.stringify(contributions);
    let surface = this.#kept.get(key);
    if (surface === undefined) {
      surface = this.#build(contributions);
      if (this.#kept.size >= MAX_KEPT) this.#kept.clear();
      this.#kept.set(key, surface);
    }
    return surface;
  }

  /** A number for a slot, of whichever plugin. */
  nextSlot(): number {
    return ++this.#slots;
  }

  #build(contributions: readonly Contributions[]): Surface {
    const owned = contributions.map((contributed, index) => ({
      pluginId: this.links[index]?.manifest.id ?? "",
      contributed,
    }));
    const tools = owned.flatMap(({ pluginId, contributed }) =>
      contributed.tools.map(({ spec, onDemand, ...policy }) => ({
        ...registerTool(spec.name, { ...spec, ...policy }, { kind: "plugin", pluginId }),
        spec,
        ...(onDemand === true && { onDemand }),
      })),
    );
    return {
      table: new HookTable(this.links, contributions, this.#dispatch),
      registry: new ToolRegistry([...this.#tools, ...tools]),
      triggers: new TriggerCatalog(
        owned.flatMap(({ pluginId, contributed }) => contributed.triggers.map((trigger) => ({ pluginId, trigger }))),
      ),
    };
  }
}
