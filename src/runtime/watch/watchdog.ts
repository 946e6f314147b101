import { type Clock, ignore, type Timer } from "../../async/index.js";
import { isHeld, progressOf } from "../../wire/index.js";
import { HeldTime } from "./held-time.js";
import { type ThreadUsage, usageOfThread } from "./thread-usage.js";

/** How often threads are looked at. */
const LOOK_MS = 20;
/** Every so many looks, also threads that no call holds are looked at. */
const LOOKS_BETWEEN = 10;
/** A thread busier than this, although no call holds it, is asked whether its event loop turns. */
const BUSY_SHARE = 0.95;

export interface Watched {
  readonly stage: Int32Array;
  /** The thread's id as the operating system has it. */
  readonly tid: number | undefined;
  readonly blockedMs: number;
  /** Which share of the time since it was last asked the thread did not wait for events, of 1. */
  readonly busyShare: () => number;
  /** Settles when the thread's event loop turns. */
  readonly ping: () => Promise<unknown>;
  /** One call has held the thread for half of that: it may have to be replaced soon. */
  readonly onHeld?: () => void;
  /** One call, or one piece of code behind an `await`, has held the thread for `blockedMs`. */
  readonly onBlocked: () => void;
  /** Told now and then how busy the thread was lately, of 1. */
  readonly onShare?: (share: number) => void;
}

/**
 * Finds threads that are blocked, from outside. What counts is the time during which one call holds the thread, less the
 * time the thread waited for a processor: a spin burns, `Atomics.wait` and native calls sleep, a thread that is merely
 * starved does neither. Nothing runs in the thread for it.
 */
export class Watchdog {
  readonly #clock: Clock;
  readonly #onThorough: () => void;
  readonly #usageOf: (tid: number | undefined) => ThreadUsage;
  readonly #watched = new Set<Look>();
  #timer: Timer | undefined;
  #lastLook = 0;
  #looks = 0;

  /** `onThorough` is told of every look at all threads. */
  constructor(clock: Clock, onThorough: () => void = ignore, usageOf = usageOfThread) {
    this.#clock = clock;
    this.#onThorough = onThorough;
    this.#usageOf = usageOf;
  }

  /** Watches a thread until the returned function is called. */
  watch(watched: Watched): () => void {
    const look = new Look(watched, this.#usageOf(watched.tid));
    this.#watched.add(look);
    if (this.#timer === undefined) {
      this.#lastLook = this.#clock.now();
      this.#timer = this.#clock.interval(LOOK_MS, () => this.#look()).unref();
    }
    return () => {
      this.#watched.delete(look);
      look.end();
      if (this.#watched.size > 0) return;
      this.#timer?.cancel();
      this.#timer = undefined;
    };
  }

  #look(): void {
    const now = this.#clock.now();
    const passed = now - this.#lastLook;
    this.#lastLook = now;
    const thorough = this.#looks++ % LOOKS_BETWEEN === 0;
    for (const look of [...this.#watched]) {
      if (look.judge(passed)) look.watched.onBlocked();
      else if (thorough) look.weigh();
    }
    if (thorough) this.#onThorough();
  }
}

/** What is known of one thread. */
class Look {
  readonly watched: Watched;
  readonly #usage: ThreadUsage;
  #progress = -1;
  /** Of the piece of work that holds the thread now. Begins with the first look that finds it, or a ping. */
  readonly #held: HeldTime;
  /** A ping that was not answered yet: the event loop does not turn, though no call holds the thread. */
  #pinged = false;
  #blocked = false;
  /** The progress it had when it was last weighed. */
  #weighedAt = -2;

  constructor(watched: Watched, usage: ThreadUsage) {
    this.watched = watched;
    this.#usage = usage;
    // When the thread that looks stood still, so may have the others: a little more than a look's time is counted.
    this.#held = new HeldTime(usage, 2 * LOOK_MS);
  }

  /** Has the thread been held for too long? Said once. */
  judge(passedMs: number): boolean {
    const progress = progressOf(this.watched.stage);
    if (progress !== this.#progress) {
      this.#progress = progress;
      this.#pinged = false;
      if (isHeld(this.watched.stage)) this.#held.begin();
      return false;
    }
    if (this.#blocked || !(this.#pinged || isHeld(this.watched.stage))) return false;
    const { blockedMs, onHeld } = this.watched;
    const before = this.#held.ms;
    this.#held.goOn(passedMs);
    const held = this.#held.ms;
    this.#blocked = held >= blockedMs;
    if (before < blockedMs / 2 && held >= blockedMs / 2) onHeld?.();
    return this.#blocked;
  }

  /** How busy the thread is; asks one that is busy with nobody's call whether it still listens. */
  weigh(): void {
    const share = this.watched.busyShare();
    this.watched.onShare?.(share);
    const stands = this.#progress === this.#weighedAt;
    this.#weighedAt = this.#progress;
    if (!stands || share < BUSY_SHARE || this.#pinged || isHeld(this.watched.stage)) return;
    this.#pinged = true;
    this.#held.begin();
    const answered = () => {
      this.#pinged = false;
    };
    this.watched.ping().then(answered, answered);
  }

  end(): void {
    this.#usage.close();
  }
}
