import { messageOf, type Owned, TroupeError, type TurnIssue } from "../kernel/index.js";
import {
  type HookFacts,
  type HookKind,
  type OperationKind,
  type OperationSpec,
  unknownOperation,
} from "../plugin/index.js";
import { recordSince } from "../trace/index.js";
import type { HookTable } from "./hook-table.js";
import type { HookOptions, PluginLink, PluginSlot } from "./plugin-link.js";
import { type DirectiveSite, type DirectivesAt, readDirectives } from "./read-answers.js";

/** The hooks of one session: the table, and this session's slot in every plugin. */
export class SessionHooks {
  readonly #table: HookTable;
  readonly slots: readonly PluginSlot[];

  constructor(table: HookTable, slots: readonly PluginSlot[]) {
    this.#table = table;
    this.slots = slots;
  }

  has(kind: HookKind, toolName?: string): boolean {
    return this.#table.registered(kind, toolName).length > 0;
  }

  /**
   * Calls one kind's hooks, one after another, or all at once where nothing depends on the order. `read` gets each
   * answer in registration order; the first error, in that order, ends it.
   */
  async each<K extends HookKind>(
    kind: K,
    facts: () => HookFacts[K],
    read: (answer: unknown, pluginId: string) => void,
    options: HookOptions = {},
  ): Promise<void> {
    const registered = this.#table.registered(kind);
    if (this.#table.dispatch === "concurrent" && registered.length > 1 && !CHAINED.includes(kind)) {
      const early = registered.map((index) => settle(() => this.#call(index, kind, facts(), options)));
      for (const [n, answer] of early.entries()) read((await answer)(), this.#idOf(registered[n] as number));
      return;
    }
    // Measured here and not by #call: one promise less for each hook, and this is the hot path.
    for (const index of registered) {
      const link = this.#table.links[index] as PluginLink;
      const started = performance.now();
      let answer: unknown;
      try {
        answer = this.#start(index, kind, facts(), options);
        if (answer instanceof Promise) answer = await answer;
      } finally {
        record(link, kind, started);
      }
      read(answer, link.manifest.id);
    }
  }

  #start(index: number, kind: HookKind, facts: object, options: HookOptions): unknown {
    const link = this.#table.links[index] as PluginLink;
    const capture = kind === "after_turn" && this.#capturesWithAfterTurn(link);
    return link.hook(this.slots[index] as PluginSlot, kind, facts, capture ? { ...options, capture } : options);
  }

  /** One hook, measured. */
  #call(index: number, kind: HookKind, facts: object, options: HookOptions): unknown {
    const link = this.#table.links[index] as PluginLink;
    const started = performance.now();
    let answer: unknown;
    try {
      answer = this.#start(index, kind, facts, options);
    } catch (error) {
      record(link, kind, started);
      throw error;
    }
    if (!(answer instanceof Promise)) {
      record(link, kind, started);
      return answer;
    }
    return measured(answer, link, kind, started);
  }

  #idOf(index: number): string {
    return (this.#table.links[index] as PluginLink).manifest.id;
  }

  /**
   * The hooks around one tool call, to be asked one by one. With concurrent dispatch all of them are asked about the
   * first subject at once; what a replacement changes is asked again.
   */
  around<S extends "before_tool_call" | "after_tool_call", T>({
    site,
    toolName,
    first,
    facts,
    options,
  }: AroundTool<S, T>): { readonly count: number; ask(n: number, subject: T): MaybePromise<Owned<DirectivesAt<S>>[]> } {
    const registered = this.#table.registered(site, toolName);
    const askNow = (n: number, subject: T) => this.#ask(site, registered[n] as number, facts(subject), options);
    if (this.#table.dispatch === "sequential" || registered.length < 2)
      return { count: registered.length, ask: askNow };
    const early = registered.map((_, n) => settle(() => askNow(n, first)));
    const used = new Set<number>();
    return {
      count: registered.length,
      ask: (n, subject) => {
        if (subject !== first || used.has(n)) return askNow(n, subject);
        used.add(n);
        return (early[n] as Promise<() => Owned<DirectivesAt<S>>[]>).then((answer) => answer());
      },
    };
  }

  /** Calls one plugin's hook. A hook that is at hand answers without a promise. */
  #ask<S extends DirectiveSite>(
    site: S,
    index: number,
    facts: HookFacts[S],
    options: HookOptions,
  ): MaybePromise<Owned<DirectivesAt<S>>[]> {
    const pluginId = this.#idOf(index);
    const answer = this.#call(index, site, facts, options);
    if (answer instanceof Promise) return answer.then((settled) => readDirectives(settled, site, pluginId));
    return readDirectives(answer, site, pluginId);
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
  async announce<K extends "turn_finalized" | "turn_persisted" | "session_restored" | "stream_finished">(
    kind: K,
    facts: HookFacts[K],
  ): Promise<TurnIssue[]> {
    const registered = this.#table.registered(kind);
    if (registered.length === 0) return [];
    const settled = await Promise.allSettled(registered.map(async (index) => this.#call(index, kind, facts, {})));
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

  /** Asks the one plugin that has this kind. */
  async only<K extends HookKind>(
    kind: K,
    facts: HookFacts[K],
    { toolName, ...options }: HookOptions & { readonly toolName?: string } = {},
  ): Promise<unknown> {
    const index = this.#table.registered(kind, toolName)[0];
    return index === undefined ? undefined : this.#call(index, kind, facts, options);
  }

  /** Captures the state of every plugin that was called since its last capture; unchanged state costs no bytes. */
  async capture(): Promise<void> {
    const { links } = this.#table;
    const due = links.filter((link, index) => link.manifest.stateful && this.slots[index]?.touched === true);
    if (due.length === 0) return;
    const settled = await Promise.allSettled(
      due.map((link) => link.capture(this.slots[links.indexOf(link)] as PluginSlot)),
    );
    for (const result of settled) if (result.status === "rejected") throw result.reason;
  }

  /** An operation, with the plugin that has it and this session's slot there. */
  operation(kind: OperationKind, name: string): { link: PluginLink; slot: PluginSlot; spec: OperationSpec } {
    const found = this.#table.operation(name);
    // The wrong kind is as unknown as the wrong name.
    if (found === undefined || found.spec.kind !== kind) throw unknownOperation(kind, name);
    const { index, spec } = found;
    return { link: this.#table.links[index] as PluginLink, slot: this.slots[index] as PluginSlot, spec };
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
}

/** A tool call whose hooks are to be asked; what they are asked about (arguments, a result) may change on the way. */
export interface AroundTool<S extends "before_tool_call" | "after_tool_call", T> {
  readonly site: S;
  readonly toolName: string;
  readonly first: T;
  readonly facts: (subject: T) => HookFacts[S];
  readonly options: HookOptions;
}

type MaybePromise<T> = T | Promise<T>;

/** What flows from one hook of these kinds into the next. */
const CHAINED: readonly HookKind[] = ["assistant_stream", "assistant_response"];

/** Starts something and keeps how it ended, so that an error waits for its turn instead of being nobody's. */
async function settle<T>(start: () => MaybePromise<T>): Promise<() => T> {
  try {
    const value = await start();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

async function measured(answer: Promise<unknown>, link: PluginLink, kind: HookKind, started: number): Promise<unknown> {
  try {
    return await answer;
  } finally {
    record(link, kind, started);
  }
}

function record(link: PluginLink, kind: HookKind, started: number): void {
  const histogram = link.probes.get(kind);
  if (histogram !== undefined) recordSince(histogram, started);
}
