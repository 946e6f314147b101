import type { Owned, TroupeError } from "../../kernel/index.js";
import { hookNameOf } from "../../plugin/index.js";
import { type EventSink, eventError } from "../../trace/index.js";
import { contentHash } from "../../wire/index.js";
import { describeCaptured } from "../plugin-thread/index.js";
import { HookFailures } from "./failure-policy.js";
import { hookError, isTimeout } from "./hook-error.js";
import type { RegisteredHook } from "./hook-table.js";
import { WorkerLink } from "./hosts/index.js";
import type { HookOptions, PluginLink, PluginSlot } from "./plugin-link.js";
import { type DirectiveSite, type DirectivesAt, readDirectives } from "./read-directives.js";

/** Makes the hook calls of one session: measured, past the breakers, and failing by their plugins' policies. */
export class HookCalls {
  /** For the turn to take. */
  readonly failures = new HookFailures();
  readonly #links: readonly PluginLink[];
  readonly #slots: readonly (PluginSlot | undefined)[];
  readonly #events: EventSink | undefined;

  constructor(links: readonly PluginLink[], slots: readonly (PluginSlot | undefined)[], events: EventSink | undefined) {
    this.#links = links;
    this.#slots = slots;
    this.#events = events;
  }

  /** Not measured: its caller does that, and says how it ended. */
  start(hook: RegisteredHook, facts: object, options: HookOptions): unknown {
    const { index } = hook;
    const link = this.#links[index] as PluginLink;
    const slot = this.#slots[index] as PluginSlot;
    link.policy.admit(hook.kind, slot.sessionId);
    return link.hook(slot, hook, facts, bringsState(hook, options) ? { ...options, capture: true } : options);
  }

  /** One hook, measured. */
  call(hook: RegisteredHook, facts: object, options: HookOptions): unknown {
    const { probes, policy } = this.#links[hook.index] as PluginLink;
    const started = probes.now();
    let answer: unknown;
    try {
      answer = this.start(hook, facts, options);
    } catch (error) {
      probes.record(hook.kind, started);
      throw this.failed(hook, started, error, options);
    }
    if (answer instanceof Promise) return this.measured(answer, hook, started, options);
    probes.record(hook.kind, started);
    policy.answered(hook.kind);
    return answer;
  }

  async measured(
    answer: Promise<unknown>,
    hook: RegisteredHook,
    started: number,
    options: HookOptions,
  ): Promise<unknown> {
    const { probes, policy } = this.#links[hook.index] as PluginLink;
    try {
      const value = await answer;
      policy.answered(hook.kind);
      return value;
    } catch (error) {
      throw this.failed(hook, started, error, options);
    } finally {
      probes.record(hook.kind, started);
    }
  }

  /** Tells the kind's breaker how a call ended, and gives the error in its plugin's name. */
  failed({ index, kind }: RegisteredHook, started: number, error: unknown, { signal }: HookOptions): TroupeError {
    const slot = this.#slots[index] as PluginSlot;
    const { sessionId } = slot;
    const aborted = signal?.aborted === true;
    if (isTimeout(error)) slot.late = true;
    const { policy, manifest } = this.#links[index] as PluginLink;
    policy.failed({ kind, sessionId, started, aborted }, error);
    return hookError(error, manifest.id, kind);
  }

  /**
   * What a failed hook comes to by its plugin's policy; undefined: what its kind does by itself. A hook that nobody waits
   * for any more did not fail.
   */
  byPolicy({ index, kind }: RegisteredHook, error: unknown, { signal }: HookOptions): Verdict {
    const { manifest, policy, probes } = this.#links[index] as PluginLink;
    if (signal?.aborted) return undefined;
    if (policy.doesWithout(error)) {
      this.failures.switchedOff(error, manifest.id);
      return "skip";
    }
    const verdict = policy.onFailure(kind);
    if (verdict === "skip") this.failures.passedOver(kind, error, manifest.id);
    const timeout = isTimeout(error);
    probes.failed(kind, timeout);
    this.#events?.emit({
      type: "hook_failed",
      session: (this.#slots[index] as PluginSlot).sessionId,
      plugin: manifest.id,
      hook: hookNameOf(kind),
      timeout,
      outcome: verdict === undefined ? "default" : OUTCOMES[verdict],
      error: eventError(error),
    });
    return verdict;
  }

  /** Reads what a plugin's hook answers. A hook that is at hand answers without a promise. */
  ask<S extends DirectiveSite>(
    site: S,
    hook: RegisteredHook,
    called: () => unknown,
    options: HookOptions,
  ): MaybePromise<Owned<DirectivesAt<S>>[]> {
    try {
      const answer = called();
      if (answer instanceof Promise) return this.#read(answer, site, hook, options);
      return readDirectives(answer, site, this.idOf(hook));
    } catch (error) {
      return this.#instead(error, site, hook, options);
    }
  }

  async #read<S extends DirectiveSite>(
    answer: Promise<unknown>,
    site: S,
    hook: RegisteredHook,
    options: HookOptions,
  ): Promise<Owned<DirectivesAt<S>>[]> {
    try {
      return readDirectives(await answer, site, this.idOf(hook));
    } catch (error) {
      return this.#instead(error, site, hook, options);
    }
  }

  /** What counts as the answer of a hook that failed: nothing, or an abort, which ends the other calls of a batch too. */
  #instead<S extends DirectiveSite>(
    error: unknown,
    site: S,
    hook: RegisteredHook,
    options: HookOptions,
  ): Owned<DirectivesAt<S>>[] {
    const verdict = this.byPolicy(hook, error, options);
    if (verdict === undefined) throw error;
    if (verdict === "skip") return [];
    const pluginId = this.idOf(hook);
    const { code, message } = this.failures.endsTurn(hook.kind, error, pluginId);
    return readDirectives({ kind: "abort_turn", code, message }, site, pluginId);
  }

  idOf({ index }: RegisteredHook): string {
    return (this.#links[index] as PluginLink).manifest.id;
  }

  /** The plugin that has the hook, and the session's slot there. */
  of({ index }: RegisteredHook): { readonly link: PluginLink; readonly slot: PluginSlot } {
    return { link: this.#links[index] as PluginLink, slot: this.#slots[index] as PluginSlot };
  }

  /** Do hooks of plugins that share their threads stand side by side? */
  haveCompany(hooks: readonly RegisteredHook[]): boolean {
    let before: unknown;
    for (const { index } of hooks) {
      const link = this.#links[index];
      const group = link instanceof WorkerLink && link.group.isShared ? link.group : undefined;
      if (group !== undefined && group === before) return true;
      before = group;
    }
    return false;
  }
}

/** Is the state of a hook's plugin captured with its answer? */
export function bringsState({ captures, endsPreparation }: RegisteredHook, options: HookOptions): boolean {
  return captures || options.capture === true || (endsPreparation && options.preparing === true);
}

export type MaybePromise<T> = T | Promise<T>;

type Verdict = "skip" | "fail_turn" | undefined;

const OUTCOMES = { skip: "skipped", fail_turn: "turn_failed" } as const;

/** Starts something and keeps how it ended, so that an error waits for its turn instead of being nobody's. */
export async function settle<T>(start: () => MaybePromise<T>): Promise<() => T> {
  try {
    const value = await start();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

/** Something may have to be captured. */
export function isDue(slot: PluginSlot | undefined): boolean {
  return slot?.stateful === true && slot.touched;
}

/**
 * How often a plugin's state has changed. A plugin that counts says so itself; of a declared state it is taken from the
 * content, so that it is the same for the same state in every life of a session.
 */
export function revisionOf(captured: Uint8Array | undefined): bigint {
  if (captured === undefined) return 0n;
  const { revision } = describeCaptured(captured);
  return revision ?? Buffer.from(contentHash(captured), "base64url").readBigUInt64LE(0);
}
