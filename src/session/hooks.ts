import { messageOf, type Owned, TroupeError, type TurnIssue } from "../kernel/index.js";
import type { HookFacts, HookKind } from "../plugin/index.js";
import { recordSince } from "../trace/index.js";
import type { HookOptions, PluginLink, PluginSlot } from "./plugin-link.js";
import { type DirectiveSite, type DirectivesAt, readDirectives } from "./read-answers.js";

const NOBODY: readonly number[] = [];

/** Which plugins registered which hook: a hook nobody registered costs one look-up and no message. */
export class HookTable {
  readonly links: readonly PluginLink[];
  readonly #byKind = new Map<HookKind, number[]>();

  constructor(links: readonly PluginLink[]) {
    this.links = links;
    links.forEach((link, index) => {
      for (const kind of link.manifest.hooks) {
        const registered = this.#byKind.get(kind);
        if (registered === undefined) this.#byKind.set(kind, [index]);
        else registered.push(index);
      }
    });
  }

  /** Indexes of the plugins with this hook, in registration order. */
  registered(kind: HookKind): readonly number[] {
    return this.#byKind.get(kind) ?? NOBODY;
  }
}

/** The hooks of one session: the table, and this session's slot in every plugin. */
export class SessionHooks {
  readonly #table: HookTable;
  readonly slots: readonly PluginSlot[];

  constructor(table: HookTable, slots: readonly PluginSlot[]) {
    this.#table = table;
    this.slots = slots;
  }

  has(kind: HookKind): boolean {
    return this.#table.registered(kind).length > 0;
  }

  /** Calls one kind's hooks one after another; the first error stops the chain. `read` turns each answer into results. */
  async each<K extends HookKind>(
    kind: K,
    facts: () => HookFacts[K],
    read: (answer: unknown, pluginId: string) => void,
    options: HookOptions = {},
  ): Promise<void> {
    for (const index of this.#table.registered(kind)) {
      const link = this.#table.links[index] as PluginLink;
      const capture = kind === "after_turn" && this.#capturesWithAfterTurn(link);
      const started = performance.now();
      let answer: unknown;
      try {
        answer = link.hook(this.slots[index] as PluginSlot, kind, facts(), capture ? { ...options, capture } : options);
        if (answer instanceof Promise) answer = await answer;
      } finally {
        record(link, kind, started);
      }
      read(answer, link.manifest.id);
    }
  }

  /** How many plugins have this hook. */
  count(kind: HookKind): number {
    return this.#table.registered(kind).length;
  }

  /** Calls the nth hook of a kind. A hook that is at hand answers without a promise. */
  ask<S extends DirectiveSite>(
    site: S,
    n: number,
    facts: HookFacts[S],
    options: HookOptions,
  ): Owned<DirectivesAt<S>>[] | Promise<Owned<DirectivesAt<S>>[]> {
    const index = this.#table.registered(site)[n] as number;
    const link = this.#table.links[index] as PluginLink;
    const started = performance.now();
    let answer: unknown;
    try {
      answer = link.hook(this.slots[index] as PluginSlot, site, facts, options);
    } catch (error) {
      record(link, site, started);
      throw error;
    }
    if (answer instanceof Promise) return this.#later(answer, link, site, started);
    record(link, site, started);
    return readDirectives(answer, site, link.manifest.id);
  }

  async #later<S extends DirectiveSite>(
    answer: Promise<unknown>,
    link: PluginLink,
    site: S,
    started: number,
  ): Promise<Owned<DirectivesAt<S>>[]> {
    try {
      return readDirectives(await answer, site, link.manifest.id);
    } finally {
      record(link, site, started);
    }
  }

  /** The directives of one site, in hook order. */
  async directives<S extends DirectiveSite>(
    site: S,
    facts: HookFacts[S],
    options: HookOptions = {},
  ): Promise<Owned<DirectivesAt<S>>[]> {
    const collected: Owned<DirectivesAt<S>>[] = [];
    await this.each(
      site as HookKind,
      () => facts as never,
      (answer, pluginId) => collected.push(...readDirectives(answer, site, pluginId)),
      options,
    );
    return collected;
  }

  /** Lifecycle events: all hooks at once, all awaited; a failure is an issue of the turn, never its end. */
  async announce<K extends "turn_finalized" | "turn_persisted" | "session_restored">(
    kind: K,
    facts: HookFacts[K],
  ): Promise<TurnIssue[]> {
    const registered = this.#table.registered(kind);
    if (registered.length === 0) return [];
    const settled = await Promise.allSettled(registered.map((index) => this.#announceTo(index, kind, facts)));
    const issues: TurnIssue[] = [];
    settled.forEach((result, i) => {
      if (result.status === "fulfilled") return;
      const { id: pluginId } = (this.#table.links[registered[i] as number] as PluginLink).manifest;
      issues.push({
        kind: "plugin",
        code: "lifecycle_hook_failed",
        message: `${kind}: ${messageOf(result.reason)}`,
        pluginId,
      });
    });
    return issues;
  }

  /** A stateful plugin was called since its last capture. */
  get needCapture(): boolean {
    return this.#table.links.some((link, index) => link.manifest.stateful && this.slots[index]?.touched === true);
  }

  /** Captures the state of every plugin that was called since its last capture; unchanged state costs no bytes. */
  async capture(): Promise<void> {
    const { links } = this.#table;
    const due = links.filter((link, index) => link.manifest.stateful && this.slots[index]?.touched === true);
    if (due.length === 0) return;
    await Promise.all(due.map((link) => link.capture(this.slots[links.indexOf(link)] as PluginSlot)));
  }

  /** This session's slot in a plugin. */
  of(pluginId: string): { link: PluginLink; slot: PluginSlot } {
    const index = this.#table.links.findIndex((link) => link.manifest.id === pluginId);
    const link = this.#table.links[index];
    const slot = this.slots[index];
    if (link === undefined || slot === undefined)
      throw new TroupeError("plugin_unknown", `There is no plugin ${pluginId}.`);
    return { link, slot };
  }

  close(): void {
    this.#table.links.forEach((link, index) => {
      link.closeSession(this.slots[index] as PluginSlot);
    });
  }

  /** The answer of after_turn can bring the state along, unless a later hook of this turn may still change it. */
  #capturesWithAfterTurn({ manifest }: PluginLink): boolean {
    return manifest.stateful && !manifest.hooks.includes("turn_finalized");
  }

  async #announceTo(index: number, kind: HookKind, facts: object): Promise<void> {
    const link = this.#table.links[index] as PluginLink;
    const started = performance.now();
    try {
      await link.hook(this.slots[index] as PluginSlot, kind, facts, {});
    } finally {
      record(link, kind, started);
    }
  }
}

function record(link: PluginLink, kind: HookKind, started: number): void {
  const histogram = link.probes.get(kind);
  if (histogram !== undefined) recordSince(histogram, started);
}
