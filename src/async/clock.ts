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
