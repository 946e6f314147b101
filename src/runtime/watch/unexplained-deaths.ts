import type { Clock } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";

/** Deaths within {@link WINDOW_MS} that are mended; one more and the worker is given up. */
const MOST_DEATHS = 3;
const WINDOW_MS = 5_000;

/**
 * What one thread of a session worker was asked for and has not answered. A thread that dies meanwhile may have died of
 * it: whoever asked is told, and a turn with a journal is ended as the culprit when it does so again and again.
 */
export class Asked {
  /** The thread runs turns that no call waits for: one that is taken up again, or that begins with inputs that waited. */
  unasked = false;
  #open = 0;

  get any(): boolean {
    return this.unasked || this.#open > 0;
  }

  /** A call that is lost with the thread stays counted: its error may come before the thread's end is known. */
  async during<T>(call: Promise<T>): Promise<T> {
    this.#open++;
    try {
      const answer = await call;
      this.#open--;
      return answer;
    } catch (error) {
      if (!(error instanceof TroupeError && error.code === "worker_lost")) this.#open--;
      throw error;
    }
  }
}

/** The latest deaths of a session worker's threads that nothing asked of them explains. */
export class UnexplainedDeaths {
  readonly #clock: Clock;
  readonly #name: string;
  #at: number[] = [];

  constructor(clock: Clock, name: string) {
    this.#clock = clock;
    this.#name = name;
  }

  /** Counts a death; the error of everything that is asked of the worker from now on when it was one too many. */
  add(cause: TroupeError): TroupeError | undefined {
    const now = this.#clock.now();
    this.#at = this.#at.filter((at) => now - at < WINDOW_MS);
    this.#at.push(now);
    if (this.#at.length <= MOST_DEATHS) return undefined;
    return new TroupeError(
      "session_worker_given_up",
      `${this.#name} was given up: its thread ended ${this.#at.length} times within ${WINDOW_MS / 1_000} s while nothing was asked of it. The last time: ${cause.message} Mend what runs on it (a model, an inline plugin), then close this runtime and create another one.`,
      { details: { ...cause.details, deaths: this.#at.length, windowMs: WINDOW_MS }, cause },
    );
  }
}
