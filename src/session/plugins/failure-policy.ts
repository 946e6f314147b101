import type { Clock } from "../../async/index.js";
import { asTroupeError, TroupeError, type TurnIssue } from "../../kernel/index.js";
import { type HookKind, hookNameOf } from "../../plugin/index.js";

import type { EventSink } from "../../trace/index.js";

import type { FailurePolicies, UntoldIssues } from "../calls/index.js";
import { BREAKER, Breaker } from "./breaker.js";

interface PluginPolicyOptions {
  readonly clock: Clock;
  readonly deadlineMs: number;
  readonly onFailure?: FailurePolicies;
  readonly optional?: boolean;
  readonly events?: EventSink | undefined;
}

/** What becomes of one plugin's hooks that fail, for all sessions of a worker, and which kinds are not asked for now. */
export class PluginPolicy {
  readonly optional: boolean;
  readonly #pluginId: string;
  readonly #options: PluginPolicyOptions;
  /** Of the kinds that ever missed a deadline: most plugins have none, and their calls pay nothing for it. */
  #breakers: Map<HookKind, Breaker> | undefined;

  constructor(pluginId: string, options: PluginPolicyOptions) {
    this.#pluginId = pluginId;
    this.#options = options;
    this.optional = options.optional === true;
  }

  get deadlineMs(): number {
    return this.#options.deadlineMs;
  }

  /** Has this kind missed no deadline since it last answered? */
  isCalm(kind: HookKind): boolean {
    return this.#breakers?.get(kind)?.isCalm !== false;
  }

  /** What the host wants instead of what the kind does by itself. */
  onFailure(kind: HookKind): FailurePolicies[HookKind] {
    return this.#options.onFailure?.[kind];
  }

  /** The plugin was given up, and its host said that sessions can do without it. */
  doesWithout(error: unknown): boolean {
    return this.optional && error instanceof TroupeError && error.code === "plugin_unavailable";
  }

  /** Throws `breaker_open` when calls of this kind are refused for now. */
  admit(kind: HookKind, sessionId: string): void {
    const open = this.#breakers?.get(kind)?.refuses(sessionId);
    if (open === undefined) return;
    const { deadlineMs } = this.#options;
    const since = new Date(open.since).toISOString();
    const next =
      open.retryInMs > 0 ? `in ${Math.ceil(open.retryInMs)} ms` : "as soon as the call that tries it has ended";
    throw new TroupeError(
      "breaker_open",
      `Plugin ${this.#pluginId}: ${hookNameOf(kind)} is not asked since ${since}, because ${BREAKER.timeouts} calls in a row did not answer within ${deadlineMs} ms. It is tried again ${next}.`,
      { retryable: true, details: { pluginId: this.#pluginId, kind, since: open.since, retryInMs: open.retryInMs } },
    );
  }

  /** A hook of this kind answered. */
  answered(kind: HookKind): void {
    if (this.#breakers === undefined) return;
    const since = this.#breakers.get(kind)?.answered();
    if (since === undefined) return;
    const { clock, events } = this.#options;
    const hook = hookNameOf(kind);
    events?.emit({ type: "breaker_closed", plugin: this.#pluginId, hook, openMs: clock.wallNow() - since });
  }

  /** A call that began at `started` failed. `aborted`: nobody waited for it any more. */
  failed(
    { kind, sessionId, started, aborted }: { kind: HookKind; sessionId: string; started: number; aborted: boolean },
    error: unknown,
  ): void {
    const code = error instanceof TroupeError ? error.code : undefined;
    if (code === "breaker_open") return;
    if (aborted || (code !== undefined && SAYS_NOTHING.includes(code))) {
      this.#breakers?.get(kind)?.undecided();
      return;
    }
    const { clock, deadlineMs } = this.#options;
    // A plugin may throw an error of this code itself; only a deadline that has passed was missed.
    if (code !== "hook_timeout" || clock.now() - started < deadlineMs * NEARLY) {
      this.answered(kind);
      return;
    }
    this.#breakers ??= new Map();
    let breaker = this.#breakers.get(kind);
    if (breaker === undefined) {
      breaker = new Breaker(clock);
      this.#breakers.set(kind, breaker);
    }
    if (!breaker.timedOut(sessionId)) return;
    this.#options.events?.emit({
      type: "breaker_opened",
      ...(breaker.session !== undefined && { session: breaker.session }),
      plugin: this.#pluginId,
      hook: hookNameOf(kind),
      timeouts: BREAKER.timeouts,
      forMs: BREAKER.openMs,
    });
  }
}

/** What the runtime says of a thread or of itself: no word of the hook's. */
const SAYS_NOTHING: readonly string[] = [
  "worker_lost",
  "plugin_blocked",
  "plugin_out_of_memory",
  "plugin_too_many_timers",
  "plugin_unavailable",
  "closed",
];

/** A timer may be a moment early. */
const NEARLY = 0.9;

/** Hooks of a session that failed and whose policy is to go on, or to end the turn where their kind alone would not. */
export class HookFailures {
  /** Made when something fails: a session whose hooks work has nothing of this. */
  #noted: { readonly pending: Map<string, TurnIssue>; readonly told: Set<string> } | undefined;
  #ending: TurnIssue | undefined;

  /** A turn begins: what was passed over since the last one, such as while the session was opened, is told with it. */
  turnBegins(): void {
    if (this.#noted === undefined) return;
    const { pending } = this.#noted;
    this.#noted = pending.size === 0 ? undefined : { pending, told: new Set(pending.keys()) };
  }

  /** A turn was refused, and what was passed over in it is of no interest to the next one. */
  turnRefused(): void {
    this.#noted = undefined;
    this.#ending = undefined;
  }

  passedOver(kind: HookKind, error: unknown, pluginId: string): void {
    this.#note(`${pluginId}:${kind}`, failedHook(kind, error, pluginId));
  }

  /** The plugin was given up and is optional: told once, whatever of it was asked. */
  switchedOff(error: unknown, pluginId: string): void {
    const { code, message } = asTroupeError(error, "plugin_unavailable");
    const more = "It is optional, so the turn went on without it.";
    this.#note(pluginId, { kind: "plugin", code, message: `${message} ${more}`, pluginId });
  }

  /** The turn ends with this one's error; the first counts. */
  endsTurn(kind: HookKind, error: unknown, pluginId: string): TurnIssue {
    const issue = failedHook(kind, error, pluginId);
    this.#ending ??= issue;
    return issue;
  }

  /** What the turn has not been told yet; undefined when there is nothing. */
  take(): { readonly issues: readonly TurnIssue[]; readonly ending: TurnIssue | undefined } | undefined {
    if (this.#noted === undefined && this.#ending === undefined) return undefined;
    const ending = this.#ending;
    const issues = [...(this.#noted?.pending.values() ?? [])];
    this.#noted?.pending.clear();
    this.#ending = undefined;
    return issues.length === 0 && ending === undefined ? undefined : { issues, ending };
  }

  /** What is still to be told, for when the session is parked; undefined when there is nothing. */
  get untold(): UntoldIssues | undefined {
    const pending = this.#noted?.pending;
    return pending === undefined || pending.size === 0 ? undefined : [...pending];
  }

  /** The session is back, and has this to tell. */
  restore(untold: UntoldIssues): void {
    for (const [key, issue] of untold) this.#note(key, issue);
  }

  /** One issue for each plugin and kind in a turn, however often the hook is asked. */
  #note(key: string, issue: TurnIssue): void {
    this.#noted ??= { pending: new Map(), told: new Set() };
    const { pending, told } = this.#noted;
    if (told.has(key)) return;
    told.add(key);
    pending.set(key, issue);
  }
}

function failedHook(kind: HookKind, error: unknown, pluginId: string): TurnIssue {
  const { code, message } = asTroupeError(error, "hook_failed");
  return { kind: "plugin", code, message: `${hookNameOf(kind)}: ${message}`, pluginId };
}
