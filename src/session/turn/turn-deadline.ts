import type { Clock, Timer } from "../../async/index.js";
import type { Cancellation } from "../../kernel/index.js";
import type { TurnLimit } from "../calls/index.js";
import { START, type UnfinishedTurn, waitsIn } from "../journal/index.js";

interface DeadlineParts extends TurnLimit {
  readonly deadlineMs: number;
  readonly clock: Clock;
  /** The time is over. */
  readonly expire: (why: Cancellation) => void;
  /** What of its time is gone, when it was taken up again. */
  readonly spentMs: number;
}

/** What a timer can hold; a longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * A turn's time limit. Its time stands still while nothing of the turn goes on but waiting for people: every tool call
 * that is under way waits for an answer from outside, or the budget is spent and somebody must raise it.
 */
export class TurnDeadline {
  readonly #parts: DeadlineParts;
  #leftMs: number;
  /** When the time began to run that `#leftMs` is to be lessened by; undefined while it stands still. */
  #since: number | undefined;
  #timer: Timer | undefined;
  #calls = 0;
  #waiting = 0;

  constructor(parts: DeadlineParts) {
    this.#parts = parts;
    this.#leftMs = Math.max(0, parts.deadlineMs - parts.spentMs);
    this.#run();
  }

  /** A tool call, from its beginning to its end. */
  async during<T>(call: () => Promise<T>): Promise<T> {
    this.#calls++;
    this.#look();
    try {
      return await call();
    } finally {
      this.#calls--;
      this.#look();
    }
  }

  /** Something that only people end. */
  async waiting<T>(answer: Promise<T>): Promise<T> {
    this.#waiting++;
    this.#look();
    try {
      return await answer;
    } finally {
      this.#waiting--;
      this.#look();
    }
  }

  end(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#since = undefined;
    this.#leftMs = Number.POSITIVE_INFINITY;
  }

  #look(): void {
    const { countsWaiting } = this.#parts;
    const stands = !countsWaiting && this.#waiting > 0 && this.#waiting >= this.#calls;
    if (stands && this.#since !== undefined) this.#stand(this.#since);
    else if (!stands && this.#since === undefined) this.#run();
  }

  #stand(since: number): void {
    this.#leftMs -= this.#parts.clock.now() - since;
    this.#since = undefined;
    this.#timer?.cancel();
  }

  #run(): void {
    if (this.#leftMs === Number.POSITIVE_INFINITY) return;
    this.#since = this.#parts.clock.now();
    this.#arm(this.#leftMs);
  }

  #arm(leftMs: number): void {
    const { clock } = this.#parts;
    this.#timer = clock.timeout(Math.min(MAX_TIMER_MS, Math.max(0, Math.ceil(leftMs))), () => this.#rang()).unref();
  }

  /** A timer counts from when the event loop last looked at the clock, and so may be early. */
  #rang(): void {
    if (this.#since === undefined) return;
    const { clock, expire, deadlineMs, keepsPartial } = this.#parts;
    const leftMs = this.#leftMs - (clock.now() - this.#since);
    if (leftMs > 0) {
      this.#arm(leftMs);
      return;
    }
    this.end();
    const reason = `The turn did not end within ${deadlineMs} ms.`;
    expire({ reason, deadline: true, ...(keepsPartial && { keepPartial: true }) });
  }
}

interface LimitedTurn {
  readonly sessionId: string;
  readonly limit: TurnLimit;
  readonly clock: Clock;
  readonly expire: DeadlineParts["expire"];
  readonly unfinished: UnfinishedTurn | undefined;
}

/** The deadline of a turn that has one. Of a turn that is taken up again a part is over. */
export function deadlineOf({ sessionId, limit, unfinished, ...parts }: LimitedTurn): TurnDeadline | undefined {
  const { deadlineMs } = limit;
  if (deadlineMs === null) return undefined;
  const began = unfinished?.rows.find(({ key }) => key === START)?.at;
  let spentMs = 0;
  if (unfinished !== undefined && began !== undefined) {
    const { ms, since } = limit.countsWaiting ? NO_WAITS : waitsIn(sessionId, unfinished);
    spentMs = Math.max(0, (since ?? parts.clock.wallNow()) - began - ms);
  }
  return new TurnDeadline({ ...limit, ...parts, deadlineMs, spentMs });
}

const NO_WAITS: ReturnType<typeof waitsIn> = { ms: 0, since: undefined };

/** What a turn does for somebody who counts its time. */
interface CountedTurn {
  readonly deadline: TurnDeadline | undefined;
}

/** A tool call of the turn. */
export function duringCall<T>({ deadline }: CountedTurn, call: () => Promise<T>): Promise<T> {
  return deadline === undefined ? call() : deadline.during(call);
}

/** Waits for what only people end; the turn's time stands still meanwhile. */
export function untilPeople<T>({ deadline }: CountedTurn, answer: Promise<T>): Promise<T> {
  return deadline === undefined ? answer : deadline.waiting(answer);
}
