import { nodeCrypto } from "./node-crypto.js";

/**
 * Everything that time and chance come by. Each thread is made with one clock and hands it to whatever it makes, so
 * that a test or a simulation can put its own in the place of {@link systemClock}.
 *
 * @example
 * const started = clock.now();
 * const timer = clock.timeout(1_000, giveUp).unref();
 * timer.cancel();
 */
export interface Clock {
  /** Milliseconds since a moment of the clock's own; never goes back. For durations. */
  now(): number;
  /** Milliseconds since 1970, as the computer has it. For what is stored, and what other computers say. */
  wallNow(): number;
  timeout(ms: number, run: () => void): Timer;
  interval(ms: number, run: () => void): Timer;
  /** Runs behind the events that wait by now (`setImmediate`). */
  soon(run: () => void): Timer;
  /** Runs when the current callback and the microtasks behind it are done (`process.nextTick`). */
  nextTick(run: () => void): void;
  /** An id nobody else has. */
  uuid(): string;
  randomBytes(size: number): Buffer;
  /** From 0 up to, but not including, 1. */
  random(): number;
}

export interface Timer {
  /** Does nothing when the timer has run or was cancelled. */
  cancel(): void;
  /** Lets the thread end before the timer has run. */
  unref(): this;
}

/** Node's own time and chance. */
export const systemClock: Clock = {
  now: () => performance.now(),
  wallNow: () => Date.now(),
  timeout: (ms, run) => new SystemTimer(setTimeout(run, ms), clearTimeout),
  interval: (ms, run) => new SystemTimer(setInterval(run, ms), clearInterval),
  soon: (run) => new SystemTimer(setImmediate(run), clearImmediate),
  nextTick: (run) => process.nextTick(run),
  uuid: () => nodeCrypto().randomUUID(),
  randomBytes: (size) => nodeCrypto().randomBytes(size),
  random: () => Math.random(),
};

/**
 * The same time and chance, by what Node has for them at this moment: whoever replaces `process.nextTick` or `setTimeout`
 * afterwards, as a plugin may on its thread, does not change this clock.
 */
export function pinnedClock(): Clock {
  const { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, clearImmediate } = globalThis;
  // Not `performance`: to ask for it loads ten of Node's modules, which a thread that only describes its plugin needs for
  // nothing else.
  const { hrtime } = process;
  const now = () => {
    const time = hrtime();
    return time[0] * 1_000 + time[1] / 1e6;
  };
  const wallNow = Date.now;
  const nextTick = process.nextTick;
  const random = Math.random;
  return {
    ...systemClock,
    now,
    wallNow,
    timeout: (ms, run) => new SystemTimer(setTimeout(run, ms), clearTimeout),
    interval: (ms, run) => new SystemTimer(setInterval(run, ms), clearInterval),
    soon: (run) => new SystemTimer(setImmediate(run), clearImmediate),
    nextTick: (run) => nextTick(run),
    random,
  };
}

class SystemTimer<T extends { unref(): unknown }> implements Timer {
  readonly #timer: T;
  readonly #clear: (timer: T) => void;

  constructor(timer: T, clear: (timer: T) => void) {
    this.#timer = timer;
    this.#clear = clear;
  }

  cancel(): void {
    this.#clear(this.#timer);
  }

  unref(): this {
    this.#timer.unref();
    return this;
  }
}
