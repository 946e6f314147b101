import { ignore } from "../../async/index.js";
import { type BeforeTurnDirective, messageOf, type Owned, pluginUnknown, type TurnIssue } from "../../kernel/index.js";
import {
  type HookFacts,
  type HookKind,
  hookNameOf,
  type NamedOperation,
  notOfPlugin,
  type OperationSpec,
  snapshotFingerprint,
  unknownOperation,
} from "../../plugin/index.js";
import type { HomeContext } from "../../tools/index.js";
import type { EventSink } from "../../trace/index.js";
import { type AroundTool, type AskedAround, aroundTool, type HooksAround } from "./around-tool.js";
import type { HookFailures } from "./failure-policy.js";
import { HookCalls, isDue, type MaybePromise, revisionOf, settle } from "./hook-calls.js";
import { finalizeFailed } from "./hook-error.js";
import { CHAINED, type HookTable, type LifecycleKind, type RegisteredHook } from "./hook-table.js";
import { askFinal, replacedInput } from "./one-by-one.js";
import { OrderedHooks } from "./ordered-hooks.js";
import type { HookOptions, PluginLink, PluginSlot } from "./plugin-link.js";
import { type DirectiveSite, type DirectivesAt, readDirectives } from "./read-directives.js";

const NO_ISSUES: readonly TurnIssue[] = [];

/** The hooks of one session: the table, and this session's slot in every plugin. */
export class SessionHooks {
  #table: HookTable;
  /** At each plugin's place; undefined where the session does without it. */
  readonly slots: readonly (PluginSlot | undefined)[];
  readonly #calls: HookCalls;
  /** At each plugin's place: the revision of what was captured last, read once. */
  readonly #captured: { readonly of: Uint8Array | undefined; readonly revision: bigint }[] = [];

  constructor(table: HookTable, slots: readonly (PluginSlot | undefined)[], events?: EventSink) {
    this.#table = table;
    this.slots = slots;
    this.#calls = new HookCalls(table.links, slots, events);
  }

  /** Hooks that failed by a policy of the host's, for the turn to take. */
  get failures(): HookFailures {
    return this.#calls.failures;
  }

  has(kind: HookKind, toolName?: string): boolean {
    return this.#table.registered(kind, toolName).length > 0;
  }

  /**
   * Calls one kind's hooks, one after another, or all at once where nothing depends on the order. `read` gets each
   * answer in registration order; the first error, in that order, ends it, unless its plugin's policy is to go on.
   */
  async each<K extends HookKind>(
    kind: K,
    facts: (pluginId: string) => HookFacts[K],
    read: (answer: unknown, pluginId: string) => void,
    options: HookOptions = {},
  ): Promise<void> {
    const registered = this.#table.registered(kind);
    if (this.#table.dispatch === "concurrent" && registered.length > 1 && !CHAINED.includes(kind)) {
      const early = registered.map((hook) => settle(() => this.#calls.call(hook, facts(this.#idOf(hook)), options)));
      for (const [n, answer] of early.entries()) {
        const hook = registered[n] as RegisteredHook;
        try {
          read((await answer)(), this.#idOf(hook));
        } catch (error) {
          if (this.#calls.byPolicy(hook, error, options) !== "skip") throw error;
        }
      }
      return;
    }
    if (registered.length > 1 && this.#calls.haveCompany(registered))
      return this.#eachInCompany(registered, facts, read, options);
    // Measured here and not by #call: one promise less for each hook, and this is the hot path.
    for (const hook of registered) {
      const link = this.#table.links[hook.index] as PluginLink;
      const started = link.probes.now();
      try {
        let answer: unknown;
        try {
          answer = this.#calls.start(hook, facts(link.manifest.id), options);
          if (answer instanceof Promise) answer = await answer;
        } finally {
          link.probes.record(kind, started);
        }
        link.policy.answered(kind);
        read(answer, link.manifest.id);
      } catch (thrown) {
        const error = this.#calls.failed(hook, started, thrown, options);
        if (this.#calls.byPolicy(hook, error, options) !== "skip") throw error;
      }
    }
  }

  async #eachInCompany(
    registered: readonly RegisteredHook[],
    facts: (pluginId: string) => object,
    read: (answer: unknown, pluginId: string) => void,
    options: HookOptions,
  ): Promise<void> {
    const ordered = new OrderedHooks(this.#calls, registered, options);
    try {
      for (const [n, hook] of registered.entries()) {
        try {
          const answer = ordered.ask(n, facts);
          read(answer instanceof Promise ? await answer : answer, this.#idOf(hook));
        } catch (error) {
          // What the hooks behind it were told may follow from an answer that does not count.
          ordered.end();
          if (this.#calls.byPolicy(hook, error, options) !== "skip") throw error;
        }
      }
    } finally {
      ordered.end();
    }
  }

  #idOf(hook: RegisteredHook): string {
    return this.#calls.idOf(hook);
  }

  /** Is there a hook that may replace a turn's input? Then nothing of that is written before it was asked. */
  get replacesInput(): boolean {
    return this.#table.replacing.length > 0;
  }

  /** See {@link replacedInput}. */
  replacedInput(
    input: string,
    facts: (pluginId: string, input: string) => HookFacts["before_turn"],
    options: HookOptions,
  ): Promise<Owned<BeforeTurnDirective>[]> {
    return replacedInput({ calls: this.#calls, hooks: this.#table.replacing, options }, input, facts);
  }

  /** Is some stream hook told when a block is over? */
  get hasFinal(): boolean {
    return this.#table.hasFinal;
  }

  /** See {@link askFinal}. */
  askFinal(
    facts: (final: boolean) => HookFacts["assistant_stream"],
    read: (answer: unknown, pluginId: string) => void,
    options: HookOptions,
  ): Promise<void> {
    return askFinal({ calls: this.#calls, hooks: this.#table.registered("assistant_stream"), options }, facts, read);
  }

  /** The hooks around one tool call, to be asked one by one. */
  around<S extends AroundTool, T>(toolName: string, asked: AskedAround<S, T>): HooksAround<S, T> {
    const { dispatch } = this.#table;
    return aroundTool(this.#calls, asked, { registered: this.#table.registered(asked.site, toolName), dispatch });
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

  /** Lifecycle events: all hooks at once, all awaited; a failure is an issue of the turn, and its end only by policy. */
  announce<K extends LifecycleKind>(
    kind: K,
    facts: HookFacts[K],
    onFailed: (error: unknown) => void = ignore,
  ): MaybePromise<readonly TurnIssue[]> {
    const registered = this.#table.registered(kind);
    if (registered.length === 0) return NO_ISSUES;
    return this.#announced(registered, (hook) => this.#calls.call(hook, facts, {}), { kind, onFailed });
  }

  async #announced(
    registered: readonly RegisteredHook[],
    call: (hook: RegisteredHook) => unknown,
    { kind, onFailed }: { readonly kind: LifecycleKind; readonly onFailed: (error: unknown) => void },
  ): Promise<readonly TurnIssue[]> {
    const settled = await Promise.allSettled(registered.map(async (hook) => call(hook)));
    return settled.flatMap((result, n): TurnIssue[] => {
      if (result.status === "fulfilled") return [];
      const hook = registered[n] as RegisteredHook;
      const pluginId = this.#idOf(hook);
      const verdict = this.#calls.byPolicy(hook, result.reason, {});
      if (verdict === "skip") return [];
      if (verdict === undefined) {
        const message = `${hookNameOf(kind)}: ${messageOf(result.reason)}`;
        onFailed(result.reason);
        return [{ kind: "plugin", code: "lifecycle_hook_failed", message, pluginId }];
      }
      // The turn has its outcome by then: all that is left to end it is to refuse it.
      if (kind === "turn_finalized") throw finalizeFailed(result.reason);
      this.failures.endsTurn(kind, result.reason, pluginId);
      return [];
    });
  }

  /** One after another. An answer is a function, which throws what its hook, or the reading of its answer, threw. */
  async *oneByOne<K extends HookKind, T>(
    kind: K,
    facts: () => HookFacts[K],
    read: (answer: unknown, pluginId: string) => T,
    options: HookOptions = {},
  ): AsyncGenerator<{ readonly pluginId: string; readonly answer: () => T }> {
    for (const hook of this.#table.registered(kind)) {
      const pluginId = this.#idOf(hook);
      const answer = await settle(async () => read(await this.#calls.call(hook, facts(), options), pluginId));
      try {
        answer();
      } catch (error) {
        const verdict = this.#calls.byPolicy(hook, error, options);
        if (verdict === "fail_turn") throw error;
        if (verdict === "skip") continue;
      }
      yield { pluginId, answer };
    }
  }

  /** Asks the one plugin that has this kind. */
  async only<K extends HookKind>(
    kind: K,
    facts: HookFacts[K],
    { toolName, ...options }: HookOptions & { readonly toolName?: string } = {},
    read: (answer: unknown) => unknown = (answer) => answer,
  ): Promise<unknown> {
    const hook = this.#table.registered(kind, toolName)[0];
    if (hook === undefined) return undefined;
    try {
      return read(await this.#calls.call(hook, facts, options));
    } catch (error) {
      const verdict = this.#calls.byPolicy(hook, error, options);
      if (verdict === undefined) throw error;
      if (verdict === "fail_turn") this.failures.endsTurn(kind, error, this.#idOf(hook));
      return undefined;
    }
  }

  /** Runs a plugin's tool. */
  tool(pluginId: string, { toolId, args, context }: { toolId: string; args: unknown; context: HomeContext }): unknown {
    const { link, slot } = this.of(pluginId);
    const result = link.tool(slot, toolId, args, context);
    if (!link.policy.optional || !(result instanceof Promise)) return result;
    return result.catch((error: unknown) => {
      if (link.policy.doesWithout(error)) this.failures.switchedOff(error, pluginId);
      throw error;
    });
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
    for (const [n, result] of settled.entries()) {
      if (result.status === "fulfilled") continue;
      const { manifest, policy } = (due[n] as (typeof due)[number]).link;
      // A plugin the session does without keeps what was captured last.
      if (!policy.doesWithout(result.reason)) throw result.reason;
      this.failures.switchedOff(result.reason, manifest.id);
    }
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

  /** The same in the middle of a turn: what these plugins change behind their answers is captured with the commit. */
  async stateSoFar(pluginIds: readonly string[]): Promise<Record<string, Uint8Array> | undefined> {
    const states = await this.unsavedState(pluginIds);
    for (const { link, slot } of this.#plugins)
      if (slot.stateful && pluginIds.includes(link.manifest.id)) slot.touched = true;
    return states;
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
    if (found === undefined || found.spec.kind !== named.kind)
      throw unknownOperation(named.kind, named.name, this.#table.operations());
    const { index, spec } = found;
    return { link: this.#table.links[index] as PluginLink, slot: this.slots[index] as PluginSlot, spec };
  }

  /** This session's slot in a plugin. */
  of(pluginId: string): { link: PluginLink; slot: PluginSlot } {
    const index = this.#table.links.findIndex(({ manifest }) => manifest.id === pluginId);
    const [link, slot] = [this.#table.links[index], this.slots[index]];
    if (link !== undefined && slot !== undefined) return { link, slot };
    throw pluginUnknown(
      `plugin ${pluginId}`,
      this.#table.links.map(({ manifest }) => manifest.id),
    );
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
