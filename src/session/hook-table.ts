import { TroupeError } from "../kernel/index.js";
import {
  duplicateOperation,
  type HookKind,
  matchesTool,
  type OperationSpec,
  SINGLETON_KINDS,
} from "../plugin/index.js";
import type { PluginLink } from "./plugin-link.js";

const NOBODY: readonly number[] = [];

/** `sequential`: one plugin after another. `concurrent`: all at once, folded in registration order. */
export type HookDispatch = "sequential" | "concurrent";

/** Which plugins registered which hook: a hook nobody registered costs one look-up and no message. */
export class HookTable {
  readonly links: readonly PluginLink[];
  readonly dispatch: HookDispatch;
  readonly #byKind = new Map<HookKind, number[]>();
  /** For kinds with matchers: the plugins that want a tool, found once per tool. */
  readonly #byTool = new Map<string, readonly number[]>();
  readonly #operations = new Map<string, { readonly index: number; readonly spec: OperationSpec }>();

  constructor(links: readonly PluginLink[], dispatch: HookDispatch = "sequential") {
    this.links = links;
    this.dispatch = dispatch;
    links.forEach((link, index) => {
      for (const kind of link.manifest.hooks) {
        const registered = this.#byKind.get(kind);
        if (registered === undefined) this.#byKind.set(kind, [index]);
        else registered.push(index);
      }
    });
    for (const kind of SINGLETON_KINDS) this.#checkSingle(kind);
    for (const [index, { manifest }] of links.entries()) {
      for (const spec of manifest.operations) {
        const other = this.#operations.get(spec.name);
        if (other !== undefined)
          throw duplicateOperation(spec.name, links[other.index]?.manifest.id ?? "", manifest.id);
        this.#operations.set(spec.name, { index, spec });
      }
    }
  }

  /** Every operation, by name. */
  operations(): OperationSpec[] {
    const specs = [...this.#operations.values()].map(({ spec }) => spec);
    return specs.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  operation(name: string): { readonly index: number; readonly spec: OperationSpec } | undefined {
    return this.#operations.get(name);
  }

  /** Indexes of the plugins with this hook, in registration order; with a tool, only those that want it. */
  registered(kind: HookKind, toolName?: string): readonly number[] {
    const all = this.#byKind.get(kind) ?? NOBODY;
    if (toolName === undefined || all.length === 0) return all;
    const key = `${kind}:${toolName}`;
    let wanted = this.#byTool.get(key);
    if (wanted === undefined) {
      wanted = all.filter((index) => {
        const patterns = this.links[index]?.manifest.matchers[kind];
        return patterns === undefined || matchesTool(patterns, toolName);
      });
      // Tool names come from models too: a model that makes them up must not fill the memory.
      if (this.#byTool.size >= MAX_TOOLS_KEPT) this.#byTool.clear();
      this.#byTool.set(key, wanted);
    }
    return wanted;
  }

  #checkSingle(kind: HookKind): void {
    const [first, second] = this.registered(kind).map((index) => this.links[index]?.manifest.id);
    if (second === undefined) return;
    throw new TroupeError(
      "duplicate_singleton",
      `Plugins ${first} and ${second} both have a ${kind}; there can be one.`,
      {
        details: { kind, plugins: [first, second] },
      },
    );
  }
}

const MAX_TOOLS_KEPT = 1024;
