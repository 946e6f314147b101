import { duplicatePlugin } from "../../kernel/index.js";
import type { PluginEntry } from "./plugin-entry.js";

/**
 * An ordered list of plugins to edit before a runtime is created: a product's defaults, and what its host changes.
 * Entries are known by the names they are given here; the order of the others is kept by every edit.
 *
 * @example
 * const stack = new PluginStack()
 *   .push("budget", { module: new URL("./budget.js", import.meta.url), options: { max: 10 } })
 *   .push("audit", { module: new URL("./audit.js", import.meta.url) })
 *   .configure("budget", (entry) => ({ ...entry, options: { max: 3 } }));
 * await createTroupe({ plugins: stack });
 */
export class PluginStack implements Iterable<PluginEntry> {
  #entries: { readonly name: string; readonly entry: PluginEntry }[] = [];

  /** Adds a plugin behind the others. A name can be used once. */
  push(name: string, entry: PluginEntry): this {
    if (this.has(name)) {
      throw duplicatePlugin(`The stack already has ${name}`, "Use replace to put another in its place.");
    }
    this.#entries.push({ name, entry });
    return this;
  }

  extend(entries: Iterable<readonly [name: string, entry: PluginEntry]>): this {
    for (const [name, entry] of entries) this.push(name, entry);
    return this;
  }

  /** Puts another plugin in the place of one; behind the others when there is none of that name. */
  replace(name: string, entry: PluginEntry): this {
    if (!this.has(name)) return this.push(name, entry);
    this.#entries = this.#entries.map((each) => (each.name === name ? { name, entry } : each));
    return this;
  }

  /** Takes a plugin out; nothing happens when there is none of that name. */
  remove(name: string): this {
    return this.retain((each) => each !== name);
  }

  retain(keep: (name: string, entry: PluginEntry) => boolean): this {
    this.#entries = this.#entries.filter(({ name, entry }) => keep(name, entry));
    return this;
  }

  /** Changes an entry in its place; nothing happens when there is none of that name. */
  configure(name: string, change: (entry: PluginEntry) => PluginEntry): this {
    this.#entries = this.#entries.map((each) => (each.name === name ? { name, entry: change(each.entry) } : each));
    return this;
  }

  has(name: string): boolean {
    return this.#entries.some((each) => each.name === name);
  }

  get names(): readonly string[] {
    return this.#entries.map(({ name }) => name);
  }

  *[Symbol.iterator](): Iterator<PluginEntry> {
    for (const { entry } of this.#entries) yield entry;
  }
}
