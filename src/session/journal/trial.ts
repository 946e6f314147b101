import { type Clock, deferred, ignore, type Timer, untilAborted } from "../../async/index.js";

/** How long a suspect has to show what it is. What kills a worker does so as soon as it is done again. */
const ALONE_MS = 2_000;

/**
 * Turns whose worker died with them more than once, on one worker. One of them may be what kills it, and the others only
 * share the worker: they are taken up one at a time, so that the next death is that one's.
 */
export class Suspects {
  #last: Promise<void> = Promise.resolve();

  /** Resolves when those before it have shown what they are, with what says the same of this one; or when it aborts. */
  async alone(signal: AbortSignal): Promise<() => void> {
    const before = this.#last;
    const { promise, resolve: past } = deferred();
    this.#last = promise;
    await untilAborted(before, signal).catch(ignore);
    if (!signal.aborted) return past;
    // Whoever is behind it still waits for those before it.
    void before.then(past);
    return ignore;
  }
}

/** How a turn came through its trial: it waits for somebody, or it has simply gone on for so long. */
export type Passed = "waits" | "lasted";

interface TrialParts {
  readonly clock: Clock;
  /** Writes down how it was passed. */
  readonly note: (passed: Passed) => Promise<unknown>;
  /** Lets the next suspect begin. */
  readonly past: () => void;
}

/**
 * The time from when a turn is taken up again until it has done something new, has ended, waits for somebody outside or
 * has lasted. A worker that dies before that counts against the turn, and later it does not.
 */
export class Trial {
  readonly #parts: TrialParts;
  readonly #timer: Timer;
  #over = false;

  constructor(parts: TrialParts) {
    this.#parts = parts;
    this.#timer = parts.clock.timeout(ALONE_MS, () => this.end("lasted"));
  }

  /** It has something to show, or has ended; or it has passed without. */
  end(passed?: Passed): void {
    if (this.#over) return;
    this.#over = true;
    this.#timer.cancel();
    const { note, past } = this.#parts;
    // The next suspect begins when this one's good name is written down.
    if (passed === undefined) past();
    else void note(passed).then(past, past);
  }
}
