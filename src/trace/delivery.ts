import type { Clock, Timer } from "../async/index.js";
import type { TroupeEvent } from "./events.js";

/** Events that may wait for one listener; beyond that they are counted. */
const MOST_WAITING = 1_000;
/** How long a listener is called in one go before others have their turn. */
const BUDGET_MS = 2;
/** Of the main thread's time a listener gets one part in so many, once it has used its budget. */
const SHARE = 10;
const LONGEST_PAUSE_MS = 10_000;

interface DeliveryParts {
  readonly clock: Clock;
  readonly give: (event: TroupeEvent) => unknown;
  /** Told once in a row of failures. */
  readonly onFailure: (error: unknown) => void;
}

/**
 * Gives events to one listener of the host's, in order, and never from within what caused them: a listener may call back
 * into the runtime. One that throws loses its own event. One that takes long gets a tenth of the thread's time; one that
 * returns a promise gets the next event when that has settled. What it cannot keep up with is counted and told as
 * `events_dropped`.
 */
export class Delivery {
  readonly #parts: DeliveryParts;
  #waiting: TroupeEvent[] = [];
  #dropped = 0;
  #timer: Timer | undefined;
  /** A promise of the listener has not settled. */
  #busy = false;
  #failing = false;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
  }

  add(event: TroupeEvent): void {
    if (this.#waiting.length >= MOST_WAITING) this.#dropped += event.count;
    else this.#waiting.push(event);
    this.#schedule(0);
  }

  /** Gives everything that waits, and does not wait for the listener's promises. */
  flush(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    for (let event = this.#take(); event !== undefined; event = this.#take()) this.#give(event);
  }

  #schedule(pauseMs: number): void {
    if (this.#timer !== undefined || this.#busy) return;
    const { clock } = this.#parts;
    const run = () => {
      this.#timer = undefined;
      this.#run();
    };
    this.#timer = (pauseMs === 0 ? clock.soon(run) : clock.timeout(pauseMs, run)).unref();
  }

  #run(): void {
    const { clock } = this.#parts;
    const started = clock.now();
    let tookMs = 0;
    for (let event = this.#take(); event !== undefined; event = this.#take()) {
      const answer = this.#give(event);
      if (answer !== undefined) {
        this.#busy = true;
        void answer.then(() => {
          this.#busy = false;
          if (this.#hasMore) this.#schedule(0);
        });
        return;
      }
      tookMs = clock.now() - started;
      if (tookMs >= BUDGET_MS) break;
    }
    if (this.#hasMore) this.#schedule(tookMs < BUDGET_MS ? 0 : Math.min(LONGEST_PAUSE_MS, tookMs * (SHARE - 1)));
  }

  get #hasMore(): boolean {
    return this.#waiting.length > 0 || this.#dropped > 0;
  }

  #take(): TroupeEvent | undefined {
    const next = this.#waiting.shift();
    if (next !== undefined || this.#dropped === 0) return next;
    const dropped = this.#dropped;
    this.#dropped = 0;
    return { type: "events_dropped", dropped, count: 1, at: this.#parts.clock.wallNow() };
  }

  /** A promise when the listener is still at it; never throws or rejects. */
  #give(event: TroupeEvent): Promise<void> | undefined {
    try {
      const answer = this.#parts.give(event);
      if (!isThenable(answer)) {
        this.#failing = false;
        return undefined;
      }
      return Promise.resolve(answer).then(
        () => {
          this.#failing = false;
        },
        (error: unknown) => this.#failed(error),
      );
    } catch (error) {
      this.#failed(error);
      return undefined;
    }
  }

  #failed(error: unknown): void {
    if (this.#failing) return;
    this.#failing = true;
    this.#parts.onFailure(error);
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}
