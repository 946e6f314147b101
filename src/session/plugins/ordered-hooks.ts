import { asTroupeError } from "../../kernel/index.js";
import { decodeError } from "../../wire/index.js";
import { type HookAnswer, packHook, packRun, packRunHook, type RunAnswer } from "../plugin-thread/index.js";
import { bringsState, type HookCalls } from "./hook-calls.js";
import type { RegisteredHook } from "./hook-table.js";
import { captureCame, captureLost, captureMode, WorkerLink } from "./hosts/index.js";
import type { HookOptions, PluginSlot } from "./plugin-link.js";

type FactsOf = (pluginId: string) => object;

/** A hook that can cross with others. */
interface RunHook {
  readonly hook: RegisteredHook;
  readonly link: WorkerLink;
  readonly slot: PluginSlot;
  readonly captures: boolean;
  /** Which of the slot's instances is asked. */
  readonly lives: number;
}

/** What came of a run, and how far it was told. */
interface Told {
  readonly hooks: readonly RunHook[];
  readonly from: number;
  readonly subject: unknown;
  readonly answer: RunAnswer;
  /** Of the way there and back, each hook's share. */
  readonly hopMs: number;
  next: number;
}

/**
 * The hooks of one kind, asked one by one in their order. Those of one group that stand side by side cross in one message
 * and run in the plugin host, each told what the ones before it left; whoever asks gets their answers one by one all the
 * same. Where a run ends early, the hooks behind it are asked from here.
 */
export class OrderedHooks {
  readonly #calls: HookCalls;
  readonly #registered: readonly RegisteredHook[];
  readonly #options: HookOptions;
  #told: Told | undefined;
  /** A hook that ended or blocked the thread of its run: what it is told when it is its turn. */
  #failed: { readonly n: number; readonly error: unknown } | undefined;
  /** They are asked one by one. */
  #apart = false;

  constructor(calls: HookCalls, registered: readonly RegisteredHook[], options: HookOptions) {
    this.#calls = calls;
    this.#registered = registered;
    this.#options = options;
  }

  /**
   * What hook `n` answers, perhaps as a promise; throws what it threw. `subject`: what the hooks are asked about; the
   * hooks from `n` to `end` are asked about the same, unless an answer changes that.
   */
  ask(n: number, facts: FactsOf, { subject, end = this.#registered.length }: AskedAbout = {}): unknown {
    if (this.#failed?.n === n) {
      const { error } = this.#failed;
      this.#failed = undefined;
      throw error;
    }
    const told = this.#told;
    if (told !== undefined && told.subject === subject && told.next === n) {
      const known = this.#next(told, n, facts);
      if (known !== undefined) return known.value;
    }
    this.end();
    const hooks = this.#together(n, end);
    const [first] = hooks;
    if (first === undefined || hooks.length < 2) {
      const hook = this.#registered[n] as RegisteredHook;
      return this.#calls.call(hook, facts(this.#calls.idOf(hook)), this.#options);
    }
    return this.#run(hooks, n, facts, subject);
  }

  /** Nobody asks for the rest. */
  end(): void {
    const { answer, hooks } = this.#told ?? {};
    this.#told = undefined;
    if (answer !== undefined && answer[3] !== 0) hooks?.[0]?.link.group.drop(answer[3]);
  }

  /** The hooks from `n` on that can cross together now. */
  #together(n: number, end: number): RunHook[] {
    const found: RunHook[] = [];
    let host: object | undefined;
    let input: unknown;
    for (let at = n; at < end && this.#failed?.n !== at && !this.#apart; at++) {
      const hook = this.#registered[at] as RegisteredHook;
      const { link, slot } = this.#calls.of(hook);
      if (!(link instanceof WorkerLink) || !link.policy.isCalm(hook.kind)) break;
      const own = this.#options.inputs?.[link.manifest.id];
      const there = link.hostNow(slot);
      if (there === undefined) break;
      const [first] = found;
      if (first === undefined) [host, input] = [there, own];
      else if (there !== host || own !== input || link.policy.deadlineMs !== first.link.policy.deadlineMs) break;
      found.push({ hook, link, slot, captures: bringsState(hook, this.#options), lives: slot.lives });
    }
    return found;
  }

  async #run(hooks: readonly RunHook[], from: number, facts: FactsOf, subject: unknown): Promise<unknown> {
    const { link, hook } = hooks[0] as RunHook;
    const { kind } = hook;
    const list: number[] = [];
    for (const each of hooks)
      packRunHook(list, each.slot.number, each.hook, each.captures ? captureMode(each.slot) : 0);
    const payload = packRun(list, kind, facts(link.manifest.id));
    const started = link.probes.now();
    const slots = hooks.map(({ slot }) => slot);
    const asked = link.group.run(slots, payload, link.within(this.#options.signal));
    const capturing = hooks.filter(({ captures }) => captures);
    for (const { slot } of capturing) {
      slot.touched = false;
      slot.capturing = asked;
    }
    try {
      const answer = await asked;
      const hopMs = (link.probes.now() - started - answer[0].reduce((sum, ms) => sum + ms, 0)) / hooks.length;
      this.#told = { hooks, from, subject, answer, hopMs: Math.max(0, hopMs), next: from };
      this.#keepStates(this.#told);
    } catch (error) {
      for (const { slot, lives } of capturing) captureLost(slot, lives);
      return this.#lost(hooks, from, { started, error }, facts, subject);
    } finally {
      for (const { slot } of capturing) if (slot.capturing === asked) slot.capturing = undefined;
    }
    return this.ask(from, facts, { subject });
  }

  /** The states that came with answers of hooks that capture. */
  #keepStates({ hooks, from, answer: [times, answers] }: Told): void {
    for (const [at, { captures, slot, lives }] of hooks.entries()) {
      if (!captures) continue;
      try {
        const answer = at < times.length && answers !== 0 ? (answers[at] as HookAnswer) : undefined;
        captureCame(slot, lives, answer?.captured);
      } catch (error) {
        this.#failed ??= { n: from + at, error };
      }
    }
  }

  /** A run that has no answer: the hook that was to blame fails, those before it are asked again. */
  #lost(
    hooks: readonly RunHook[],
    from: number,
    { started, error }: { readonly started: number; readonly error: unknown },
    facts: FactsOf,
    subject: unknown,
  ): unknown {
    const { code, details } = asTroupeError(error, "hook_failed");
    if (code === "run_apart" || code === "unserialisable") {
      // One of the answers cannot cross, and nobody can say whose: asked one by one, it fails its own hook.
      this.#apart = true;
      return this.ask(from, facts, { subject });
    }
    const at = hooks.findIndex(({ link }) => link.manifest.id === details.pluginId);
    if (at > 0) {
      this.#failed = { n: from + at, error };
      return this.ask(from, facts, { subject, end: from + at });
    }
    const { hook, link } = hooks[0] as RunHook;
    link.probes.record(hook.kind, started);
    throw this.#calls.failed(hook, started, error, this.#options);
  }

  /** The next answer of a run; undefined when the run did not come that far. */
  #next(told: Told, n: number, facts: FactsOf): { readonly value: unknown } | undefined {
    const at = n - told.from;
    const asked = told.hooks[at];
    // The run is over, and this one was no part of it.
    if (asked === undefined) return undefined;
    const { hook, link, captures } = asked;
    const [times, answers, failure, unfinished] = told.answer;
    const ms = times[at];
    if (ms !== undefined) {
      told.next++;
      link.probes.add(hook.kind, ms + told.hopMs);
      link.policy.answered(hook.kind);
      const answer = answers === 0 ? undefined : answers[at];
      return { value: captures && answers !== 0 ? (answer as HookAnswer).value : answer };
    }
    if (at > times.length) return undefined;
    if (failure !== 0) {
      this.#told = undefined;
      throw this.#calls.failed(hook, link.probes.now(), decodeError(failure), this.#options);
    }
    if (unfinished === 0) return undefined;
    this.#told = undefined;
    return { value: this.#rest(asked, { run: unfinished, at }, facts) };
  }

  /** The hook that a run came to and that has not answered yet: from now on a call of its own. */
  #rest(
    { hook, link, slot, captures }: RunHook,
    run: { readonly run: readonly [lane: number, call: number]; readonly at: number },
    facts: FactsOf,
  ): Promise<unknown> {
    const payload = packHook(slot.number, hook, captures ? captureMode(slot) : 0, facts(link.manifest.id));
    const asked = link.group.rest(slot, run, payload, link.within(this.#options.signal));
    const answer = captures ? link.keeping(slot, asked as Promise<HookAnswer>) : asked;
    return this.#calls.measured(answer, hook, link.probes.now(), this.#options);
  }
}

interface AskedAbout {
  readonly subject?: unknown;
  readonly end?: number;
}
