import type { Clock } from "../../async/index.js";

/** When a breaker opens, and for how long. */
export const BREAKER = {
  /** Missed deadlines in a row. */
  timeouts: 5,
  openMs: 5_000,
} as const;

/** Why a call is not made. */
export interface OpenBreaker {
  /** Wall time of the first opening: trials that failed since do not move it. */
  readonly since: number;
  /** How long until a call may try again; 0 while such a trial is under way. */
  readonly retryInMs: number;
}

/**
 * Keeps a hook that does not answer from costing every turn its whole deadline: after so many missed deadlines in a row
 * calls are refused at once, until one trial call decides. Timeouts of one session alone refuse that session only,
 * because a session that makes a hook hang must not take the plugin from its neighbours.
 *
 * @example
 * const open = breaker.refuses(sessionId);
 * if (open === undefined) ask().then(() => breaker.answered(), () => breaker.timedOut(sessionId));
 */
export class Breaker {
  readonly #clock: Pick<Clock, "now" | "wallNow">;
  /** Missed deadlines since the last answer. */
  #timeouts = 0;
  /** The session all of them were missed for; undefined when there were several. */
  #session: string | undefined;
  #open: { readonly since: number; readonly until: number } | undefined;
  #trying = false;

  constructor(clock: Pick<Clock, "now" | "wallNow">) {
    this.#clock = clock;
  }

  /** Was the last call answered? */
  get isCalm(): boolean {
    return this.#timeouts === 0 && this.#open === undefined;
  }

  /** Asked before each call: undefined when it may be made. The call that is let through an open breaker is its trial. */
  refuses(sessionId: string): OpenBreaker | undefined {
    if (this.#open === undefined || (this.#session !== undefined && this.#session !== sessionId)) return undefined;
    const { since, until } = this.#open;
    const retryInMs = Math.max(0, until - this.#clock.now());
    if (retryInMs > 0 || this.#trying) return { since, retryInMs };
    this.#trying = true;
    return undefined;
  }

  /** The session that alone is refused; undefined: all are, or none. */
  get session(): string | undefined {
    return this.#session;
  }

  /**
   * The plugin answered a call of this kind, whatever it said and whoever asked. Gives since when the breaker was open,
   * when this closed it.
   */
  answered(): number | undefined {
    const since = this.#open?.since;
    this.#timeouts = 0;
    this.#session = undefined;
    this.#open = undefined;
    this.#trying = false;
    return since;
  }

  /** True when this opened the breaker; a trial that failed keeps it open. */
  timedOut(sessionId: string): boolean {
    // A call that was made before the breaker opened ends no trial and prolongs nothing.
    if (this.#open !== undefined && !this.#trying) return false;
    if (this.#timeouts === 0) this.#session = sessionId;
    else if (this.#session !== sessionId) this.#session = undefined;
    this.#timeouts++;
    if (!this.#trying && this.#timeouts < BREAKER.timeouts) return false;
    this.#trying = false;
    const wasOpen = this.#open !== undefined;
    const since = this.#open?.since ?? this.#clock.wallNow();
    this.#open = { since, until: this.#clock.now() + BREAKER.openMs };
    return !wasOpen;
  }

  /** The call ended without saying anything about the hook, such as by its caller's abort: the next one is the trial. */
  undecided(): void {
    this.#trying = false;
  }
}
