import { type Clock, systemClock, type Timer } from "../../src/async/index.js";

interface Due {
  at: number;
  readonly every: number | undefined;
  readonly run: () => void;
}

/**
 * A clock that stands still until it is advanced, and counts where the real one rolls dice. `nextTick` is a microtask:
 * a test that awaits anything lets it run.
 */
export class ManualClock implements Clock {
  #now = 0;
  #wallNow: number;
  #ids = 0;
  /** Timers ever made. */
  made = 0;
  readonly #due = new Set<Due>();
  readonly #soon = new Set<() => void>();

  constructor({ wallNow = Date.UTC(2030, 0, 1) }: { readonly wallNow?: number } = {}) {
    this.#wallNow = wallNow;
  }

  /** Timers that have not run. */
  get timers(): number {
    return this.#due.size;
  }

  now(): number {
    return this.#now;
  }

  wallNow(): number {
    return this.#wallNow;
  }

  timeout(ms: number, run: () => void): Timer {
    return this.#add({ at: this.#now + Math.max(1, ms), every: undefined, run });
  }

  interval(ms: number, run: () => void): Timer {
    return this.#add({ at: this.#now + Math.max(1, ms), every: Math.max(1, ms), run });
  }

  soon(run: () => void): Timer {
    this.#soon.add(run);
    return timer(() => this.#soon.delete(run));
  }

  nextTick(run: () => void): void {
    queueMicrotask(run);
  }

  uuid(): string {
    return `00000000-0000-4000-8000-${String(++this.#ids).padStart(12, "0")}`;
  }

  randomBytes(size: number): Buffer {
    return Buffer.alloc(size, ++this.#ids);
  }

  random(): number {
    return 0.5;
  }

  /** Lets time pass: runs the timers that are due, in the order of their time. */
  advance(ms: number): void {
    const until = this.#now + ms;
    while (this.#runNext(until));
    this.#pass(until);
  }

  /** The same, and gives promises their turn after each timer. */
  async elapse(ms: number): Promise<void> {
    const until = this.#now + ms;
    await this.turn();
    while (this.#runNext(until)) await this.turn();
    this.#pass(until);
  }

  /** Runs what waits for the next turn of the event loop, and what that brings. */
  async turn(): Promise<void> {
    await settled();
    for (const run of this.#soon) {
      this.#soon.delete(run);
      run();
      await settled();
    }
  }

  #add(due: Due): Timer {
    this.made++;
    this.#due.add(due);
    return timer(() => this.#due.delete(due));
  }

  #runNext(until: number): boolean {
    let next: Due | undefined;
    for (const due of this.#due) if (due.at <= until && (next === undefined || due.at < next.at)) next = due;
    if (next === undefined) return false;
    this.#pass(next.at);
    if (next.every === undefined) this.#due.delete(next);
    else next.at += next.every;
    next.run();
    return true;
  }

  #pass(at: number): void {
    this.#wallNow += at - this.#now;
    this.#now = at;
  }
}

/** Node's clock, but for timeouts: they run at once, and their lengths are noted. */
export function hastyClock(slept: number[] = []): Clock {
  return {
    ...systemClock,
    timeout(ms, run) {
      slept.push(ms);
      return systemClock.soon(run);
    },
  };
}

function timer(cancel: () => void): Timer {
  const made: Timer = { cancel, unref: () => made };
  return made;
}

/** The real event loop's next turn: every promise that could settle has. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
