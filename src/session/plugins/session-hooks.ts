import { ignore } from "../../async/index.js";
import { messageOf, type Owned, TroupeError, type TurnIssue } from "../../kernel/index.js";
import {
  type HookFacts,
  type HookKind,
  type NamedOperation,
  notOfPlugin,
  type OperationSpec,
  snapshotFingerprint,
  unknownOperation,
} from "../../plugin/index.js";
import { contentHash } from "../../wire/index.js";
import { describeCaptured } from "../plugin-thread/index.js";
import type { HookTable, RegisteredHook } from "./hook-table.js";
import type { HookOptions, PluginLink, PluginSlot } from "./plugin-link.js";
import { type DirectiveSite, type DirectivesAt, readDirectives } from "./read-answers.js";

/** The hooks of one session: the table, and this session's slot in every plugin. */
export class SessionHooks {
  #table: HookTable;
  /** At each plugin's place; undefined where the session does without it. */
  readonly slots: readonly (PluginSlot | undefined)[];
  /** At each plugin's place: the revision of what was captured last, read once. */
  readonly #captured: { readonly of: Uint8Array | undefined; readonly revision: bigint }[] = [];

  constructor(table: HookTable, slots: readonly (PluginSlot | undefined)[]) {
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
    facts: (pluginId: string) => HookFacts[K],
    read: (answer: unknown, pluginId: string) => void,
    options: HookOptions = {},
  ): Promise<void> {
    const registered = this.#table.registered(kind);
    if (this.#table.dispatch === "concurrent" && registered.length > 1 && !CHAINED.includes(kind)) {
      const early = registered.map((hook) => settle(() => this.#call(hook, facts(this.#idOf(hook)), options)));
      for (const [n, answer] of early.entries()) read((await answer)(), this.#idOf(registered[n] as RegisteredHook));
      return;
    }
    // Measured here and not by #call: one promise less for each hook, and this is the hot path.
    for (const hook of registered) {
      const link = this.#table.links[hook.index] as PluginLink;
      const started = link.probes.now();
      let answer: unknown;
      try {
        answer = this.#start(hook, facts(link.manifest.id), options);
        if (answer instanceof Promise) answer = await answer;
      } finally {
        link.probes.record(kind, started);
      }
      read(answer, link.manifest.id);
    }
  }

  #start(hook: RegisteredHook, facts: object, options: HookOptions): unknown {
    const { index, captures } = hook;
    const link = this.#table.links[index] as PluginLink;
    const slot = this.slots[index] as PluginSlot;
    return link.hook(slot, hook, facts, captures ? { ...options, capture: true } : options);
  }

  /** One hook, measured. */
  #call(hook: RegisteredHook, facts: object, options: HookOptions): unknown {
    const { probes } = this.#table.links[hook.index] as PluginLink;
    const started = probes.now();
    let answer: unknown;
    try {
      answer = this.#start(hook, facts, options);
    } finally {
      if (!(answer instanceof Promise)) probes.record(hook.kind, started);
    }
    return answer instanceof Promise ? answer.finally(() => probes.record(hook.kind, started)) : answer;
  }

  #idOf({ index }: RegisteredHook): string {
    return (this.#table.links[index] as PluginLink).manifest.id;
  }

  /**
   * The hooks around one tool call, to be asked one by one; what they are asked about (arguments, a result) may change on
   * the way. With concurrent dispatch all of them are asked about the first subject at once; what a replacement changes
   * is asked again.
   */
  around<S extends "before_tool_call" | "after_tool_call", T>(asked: {
    readonly site: S;
    readonly toolName: string;
    readonly first: T;
    readonly facts: (subject: T) => HookFacts[S];
    readonly options: HookOptions;
  }): { readonly count: number; ask(n: number, subject: T): MaybePromise<Owned<DirectivesAt<S>>[]> } {
    const { site, first, options } = asked;
    const registered = this.#table.registered(site, asked.toolName);
    const count = registered.length;
    const askNow = (n: number, subject: T) =>
      this.#ask(site, registered[n] as RegisteredHook, asked.facts(subject), options);
    if (this.#table.dispatch === "sequential" || count < 2) return { count, ask: askNow };
    const early = registered.map((_, n) => settle(() => askNow(n, first)));
    const used = new Set<number>();
    return {
      count,
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
    hook: RegisteredHook,
    facts: HookFacts[S],
    options: HookOptions,
  ): MaybePromise<Owned<DirectivesAt<S>>[]> {
    const pluginId = this.#idOf(hook);
    const answer = this.#call(hook, facts, options);
    if (answer instanceof Promise) return answer.then((settled) => readDirectives(settled, site, pluginId));
    return readDirectives(answer, site, pluginId);
  }

  /** The directives of one site, in hook order. */
  async directives<S extends DirectiveSite>(
    site: S,
    facts: HookFacts[S] | ((pluginId: string) => HookFacts[S]),
    options: HookOptions = {},
  ): Promise<Owned<DirectivesAt<S>>[]> {
    const collected: Owned<DirectivesAt<S>>[] = [];
    await this.each(
      site as HookKind,
      (typeof facts === "function" ? facts : () => facts) as never,
      (answer, pluginId) => collected.push(...readDirectives(answer, site, pluginId)),
      options,
    );
    return collected;
  }

  /** Lifecycle events: all hooks at once, all awaited; a failure is an issue of the turn, never its end. */
  async announce<K extends LifecycleKind>(kind: K, facts: HookFacts[K]): Promise<TurnIssue[]> {
    const registered = this.#table.registered(kind);
    if (registered.length === 0) return [];
    const settled = await Promise.allSettled(registered.map(async (hook) => this.#call(hook, facts, {})));
    return settled.flatMap((result, n): TurnIssue[] => {
      if (result.status === "fulfilled") return [];
      const pluginId = this.#idOf(registered[n] as RegisteredHook);
      const message = `${kind}: ${messageOf(result.reason)}`;
      return [{ kind: "plugin", code: "lifecycle_hook_failed", message, pluginId }];
    });
  }

  /** One after another. An answer is a function, which throws what its hook threw. */
  async *oneByOne<K extends HookKind>(
    kind: K,
    facts: () => HookFacts[K],
  ): AsyncGenerator<{ readonly pluginId: string; readonly answer: () => unknown }> {
    for (const hook of this.#table.registered(kind))
      yield { pluginId: this.#idOf(hook), answer: await settle(() => this.#call(hook, facts(), {})) };
  }

  /** Asks the one plugin that has this kind. */
  async only<K extends HookKind>(
    kind: K,
    facts: HookFacts[K],
    { toolName, ...options }: HookOptions & { readonly toolName?: string } = {},
  ): Promise<unknown> {
    const hook = this.#table.registered(kind, toolName)[0];
    return hook === undefined ? undefined : this.#call(hook, facts, options);
  }

  /** The plugins the session has, each with its slot. */
  get #plugins(): { readonly link: PluginLink; readonly slot: PluginSlot; readonly index: number }[] {
    return this.#table.links.flatMap((link, index) => {
      const slot = this.slots[index];
      return slot === undefined ? [] : [{ link, slot, index }];
    });
  }

  /** Was a stateful plugin called since its last capture? With a kind, one that has a hook of it. */
  needCapture(kind?: HookKind): boolean {
    if (kind === undefined) return this.slots.some(isDue);
    return this.#table.registered(kind).some(({ index }) => isDue(this.slots[index]));
  }

  /**
   * Captures the state of every plugin that was called since its last capture; unchanged state costs no bytes. With a
   * kind, only of those that have a hook of it.
   */
  async capture(kind?: HookKind): Promise<void> {
    if (!this.needCapture(kind)) return;
    const wanted = kind && this.#table.registered(kind).map(({ index }) => index);
    const due = this.#plugins.filter(({ slot, index }) => isDue(slot) && wanted?.includes(index) !== false);
    const settled = await Promise.allSettled(due.map(({ link, slot }) => link.capture(slot)));
    for (const result of settled) if (result.status === "rejected") throw result.reason;
  }

  /** The same behind captures that are under way, such as a parking's. Not for a call that a plugin waits for itself. */
  async captureBehind(): Promise<void> {
    await Promise.allSettled(this.slots.map((slot) => slot?.capturing));
    await this.capture();
  }

  /** The plugins with a hook of one of these kinds. */
  pluginsWith(...kinds: readonly HookKind[]): string[] {
    return [...new Set(kinds.flatMap((kind) => this.#table.registered(kind).map((hook) => this.#idOf(hook))))];
  }

  /** The state of these plugins (all, unless said) as it is now, as far as no commit has it; what cannot be captured is left out. */
  async unsavedState(pluginIds?: readonly string[]): Promise<Record<string, Uint8Array> | undefined> {
    const states: Record<string, Uint8Array> = {};
    for (const { link, slot } of this.#plugins) {
      const { id } = link.manifest;
      if (!slot.stateful || pluginIds?.includes(id) === false) continue;
      // The commit tries again, and says what is wrong with it.
      if (slot.touched) await link.capture(slot).catch(ignore);
      if (slot.dirty && slot.captured !== undefined) states[id] = slot.captured;
    }
    return Object.keys(states).length > 0 ? states : undefined;
  }

  /** Has every plugin that registers do so again with its next call, as it is now. */
  async renew(): Promise<void> {
    await this.capture();
    for (const { link, slot } of this.#plugins) if (link.manifest.registers) link.renew(slot);
  }

  /** What the plugins registered anew. */
  rebind(table: HookTable): void {
    this.#table = table;
  }

  restoreState(pluginId: string, state: Uint8Array): void {
    const plugin = this.#plugins.find(({ link }) => link.manifest.id === pluginId);
    plugin?.link.renew(plugin.slot, state);
  }

  /** An operation, with the plugin that has it and this session's slot there. */
  operation(named: NamedOperation): { link: PluginLink; slot: PluginSlot; spec: OperationSpec } {
    const found = this.#table.operation(named.name);
    if ("pluginId" in named) {
      const plugin = this.of(named.pluginId);
      const owner = found && this.#table.links[found.index];
      if (found !== undefined && owner === plugin.link) return { ...plugin, spec: found.spec };
      const operations = this.#table.operations(named.pluginId).map(({ name }) => name);
      throw notOfPlugin(named, { owner: owner?.manifest.id, operations });
    }
    // The wrong kind is as unknown as the wrong name.
    if (found === undefined || found.spec.kind !== named.kind) throw unknownOperation(named.kind, named.name);
    const { index, spec } = found;
    return { link: this.#table.links[index] as PluginLink, slot: this.slots[index] as PluginSlot, spec };
  }

  /** This session's slot in a plugin. */
  of(pluginId: string): { link: PluginLink; slot: PluginSlot } {
    const index = this.#table.links.findIndex(({ manifest }) => manifest.id === pluginId);
    const [link, slot] = [this.#table.links[index], this.slots[index]];
    if (link !== undefined && slot !== undefined) return { link, slot };
    throw new TroupeError("plugin_unknown", `There is no plugin ${pluginId}.`);
  }

  /** Of the plugins' state as it was captured last; changes whenever any of it does. */
  fingerprint(): bigint {
    return snapshotFingerprint(this.revisions());
  }

  /** Every plugin of the session with its state's revision. */
  revisions(): { id: string; version: string; revision: bigint }[] {
    return this.#plugins.map(({ link, slot, index }) => {
      const { id, version } = link.manifest;
      return { id, version, revision: this.#revision(slot, index) };
    });
  }

  /** The revision of every plugin as far as it is known without a hop: an inline plugin that counts its own is asked. */
  revisionsNow(): string {
    return this.slots
      .map((slot, index) => slot && (this.#table.links[index]?.revisionNow?.(slot) ?? this.#revision(slot, index)))
      .join();
  }

  #revision({ captured }: PluginSlot, index: number): bigint {
    let known = this.#captured[index];
    if (known === undefined || known.of !== captured) {
      known = { of: captured, revision: revisionOf(captured) };
      this.#captured[index] = known;
    }
    return known.revision;
  }

  /** Plugins whose state changed under an unchanged revision; told once each. */
  takeUnrevised(): string[] {
    if (!this.slots.some((slot) => slot?.unrevised)) return [];
    const found = this.#plugins.filter(({ slot }) => slot.unrevised);
    for (const { slot } of found) slot.unrevised = false;
    return found.map(({ link }) => link.manifest.id);
  }

  close(): void {
    for (const { link, slot } of this.#plugins) link.closeSession(slot);
  }
}

type LifecycleKind =
  | "turn_finalized"
  | "turn_persisted"
  | "session_restored"
  | "session_config_changed"
  | "stream_finished";

/** Something may have to be captured. */
function isDue(slot: PluginSlot | undefined): boolean {
  return slot?.stateful === true && slot.touched;
}

/**
 * How often a plugin's state has changed. A plugin that counts says so itself; of a declared state it is taken from the
 * content, so that it is the same for the same state in every life of a session.
 */
function revisionOf(captured: Uint8Array | undefined): bigint {
  if (captured === undefined) return 0n;
  const { revision } = describeCaptured(captured);
  return revision ?? Buffer.from(contentHash(captured), "base64url").readBigUInt64LE(0);
}

type MaybePromise<T> = T | Promise<T>;

/** What flows from one hook of these kinds into the next. */
const CHAINED: readonly HookKind[] = ["context_transform", "assistant_stream", "assistant_response"];

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
