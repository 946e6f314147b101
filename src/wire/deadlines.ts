import type { Clock, Timer } from "../async/index.js";
/**
 * Many deadlines, few timers. Calls with the same time limit expire in the order they were made, so one timer per
 * distinct limit is enough and adding a deadline costs a push, not a timer.
 */
export class Deadlines {
  readonly #clock: Clock;
  readonly #queues = new Map<number, Queue>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Calls `expire` in `ms` from now unless the returned entry is cancelled. One function can serve many deadlines: it
   * gets the `subject` it was added with.
   */
  add(ms: number, expire: () => void): Deadline;
  add<T>(ms: number, expire: (subject: T) => void, subject: T): Deadline;
  add(ms: number, expire: (subject: never) => void, subject?: unknown): Deadline {
    let queue = this.#queues.get(ms);
    if (queue === undefined) {
      queue = { ms, entries: [], first: 0, timer: undefined, dueAt: 0 };
      this.#queues.set(ms, queue);
    }
    const entry: Deadline = {
      at: this.#clock.now() + ms,
      expire: expire as (subject: unknown) => void,
      subject,
      queue,
    };
    queue.entries.push(entry);
    if (queue.timer === undefined) this.#arm(queue, ms);
    return entry;
  }

  cancel(entry: Deadline): void {
    entry.expire = undefined;
    // Behind an older deadline the entry stays in its queue; what it was about must not.
    entry.subject = undefined;
    dropSettled(entry.queue);
  }

  /** Forgets every deadline; none will fire. */
  clear(): void {
    for (const queue of this.#queues.values()) queue.timer?.cancel();
    this.#queues.clear();
  }

  // A deadline alone must not keep a process alive: the port of the call it guards does.
  #arm(queue: Queue, ms: number): void {
    const delayMs = Math.min(MAX_TIMER_MS, Math.max(1, Math.ceil(ms)));
    queue.dueAt = this.#clock.now() + delayMs;
    queue.timer = this.#clock.timeout(delayMs, () => this.#sweep(queue)).unref();
  }

  /**
   * A timer that fires late says that this thread stood still, and perhaps the whole process: answers may be waiting to
   * be read, or those who give them stood still as well. Every deadline is then moved by as long.
   */
  #sweep(queue: Queue): void {
    queue.timer = undefined;
    const now = this.#clock.now();
    const late = now - queue.dueAt;
    if (late > STOOD_STILL_MS) {
      for (let i = queue.first; i < queue.entries.length; i++) (queue.entries[i] as Deadline).at += late;
    }
    const due: (() => void)[] = [];
    for (let i = queue.first; i < queue.entries.length; i++) {
      const entry = queue.entries[i] as Deadline;
      if (entry.at > now) break;
      const { expire, subject } = entry;
      if (expire !== undefined) due.push(() => expire(subject));
      entry.expire = undefined;
    }
    dropSettled(queue);
    const next = queue.entries[queue.first];
    if (next !== undefined) this.#arm(queue, next.at - now);
    else this.#queues.delete(queue.ms);
    for (const expire of due) expire();
  }
}

export interface Deadline {
  at: number;
  readonly queue: Queue;
  subject: unknown;
  expire: ((subject: unknown) => void) | undefined;
}

interface Queue {
  readonly ms: number;
  entries: Deadline[];
  /** Index of the oldest live entry; a moving start is cheaper than shifting the array. */
  first: number;
  timer: Timer | undefined;
  /** When the timer should fire. */
  dueAt: number;
}

/** Settled calls leave from the front, so a busy queue stays as long as the number of calls in flight. */
function dropSettled(queue: Queue): void {
  const { entries } = queue;
  while (queue.first < entries.length && entries[queue.first]?.expire === undefined) queue.first++;
  if (queue.first > 256 && queue.first * 2 > entries.length) {
    queue.entries = entries.slice(queue.first);
    queue.first = 0;
  }
}

/** A timer later than this was held up by the thread itself; Node's own timers are late by a few milliseconds. */
const STOOD_STILL_MS = 250;

/** What a timer can hold; a longer one would fire at once. The sweep arms it again for what is left. */
const MAX_TIMER_MS = 2 ** 31 - 1;
