const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 2_000;
const WINDOW_MS = 5_000;

/**
 * How long to wait before a thread is replaced: hardly at all after one death, ever longer for one that keeps dying, so
 * that a crash loop costs its own plugin's calls their time and nobody else the processor.
 */
export class Backoff {
  #deaths: number[] = [];

  /** Counts a death at `now` (milliseconds of any clock) and gives the pause before the next attempt. */
  pauseAfterDeath(now: number): number {
    this.#deaths = this.#deaths.filter((at) => now - at < WINDOW_MS);
    this.#deaths.push(now);
    return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#deaths.length - 1));
  }
}
