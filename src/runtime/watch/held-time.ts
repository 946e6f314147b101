import type { ThreadUsage, Usage } from "./thread-usage.js";

/** From here on it is looked whether a thread sleeps that was on no processor: what the system says is not finer. */
const UNEXPLAINED_MS = 5;

/**
 * How long one piece of work has held a thread, less the time the thread waited for a processor. The system tells of such
 * a wait only when it is over. So while a thread is runnable, only the time counts that it was on a processor; and what is
 * told of a wait later is taken back from what was counted of it before.
 */
export class HeldTime {
  readonly #thread: ThreadUsage;
  readonly #mostMs: number;
  #last: Usage | undefined;
  /** The time that passed, less the waits that were told. */
  #passedMs = 0;
  /** How much of it the thread was runnable and did not run: a wait that nobody has told of yet. */
  #untoldMs = 0;

  /** No more than `mostMs` is counted of one look: who looks may have stood still too. */
  constructor(thread: ThreadUsage, mostMs: number) {
    this.#thread = thread;
    this.#mostMs = mostMs;
  }

  get ms(): number {
    return Math.max(0, this.#passedMs - this.#untoldMs);
  }

  /** Another piece of work holds the thread from now on. */
  begin(): void {
    this.#passedMs = 0;
    this.#untoldMs = 0;
    this.#last = this.#thread.usage();
  }

  /** The same piece of work has held it for so much longer. */
  goOn(passedMs: number): void {
    const usage = this.#thread.usage();
    const last = this.#last;
    this.#last = usage;
    const isKnown = usage !== undefined && last !== undefined;
    const toldMs = isKnown ? usage.waitedMs - last.waitedMs : 0;
    const countedMs = Math.min(this.#mostMs, passedMs - toldMs);
    // Not below 0: a wait that had begun before this piece of work took the thread is none of it.
    this.#passedMs = Math.max(0, this.#passedMs + countedMs);
    if (!isKnown) return;
    const unexplainedMs = this.#untoldMs + countedMs - (usage.burntMs - last.burntMs);
    const isRunnable = unexplainedMs < UNEXPLAINED_MS || this.#thread.isRunnable();
    this.#untoldMs = Math.max(0, isRunnable ? unexplainedMs : this.#untoldMs - toldMs);
  }
}
