import type { Clock } from "../../async/index.js";
import { type EndedBy, type OwnMeasures, setEndedBy } from "../../wire/index.js";

/** How often a thread looks at itself at most, after calls. */
const LOOK_MS = 20;
/** Every so many looks also what keeps its event loop busy is counted, which takes longer. */
const LOOKS_BETWEEN = 10;
/** Timers and other things that keep an event loop busy; a thread with more serves its calls ever more slowly. */
const MOST_RESOURCES = 10_000;

/**
 * Ends a plugin's thread that holds too much: V8 limits a thread's heap, and nobody its buffers and timers. Buffers are
 * looked at before calls take the thread and when they have given it back, so that a call which hoards them is known and
 * one that only came behind a timer's hoard is not blamed. A look costs a short hook a tenth of its time: hooks that are
 * read together are looked at together, and when they were several, whoever it was is found in quarantine. Timers take
 * longer to count: they are when answers are about to leave, now and then. It needs no timer of its own.
 */
export class ThreadLimits {
  readonly #clock: Clock;
  readonly #measures: OwnMeasures;
  readonly #cells: Int32Array;
  readonly #externalBytes: number;
  #lastAt = 0;
  #looks = 0;
  /** Somebody else may be at fault than whose answers leave next: answers have left since the last look. */
  #isDoubtful = false;
  /** The thread held too much already when the call of now took it, or the first that was begun since the last look. */
  #wasOver = false;
  /** Calls that were begun since then. */
  #begun = 0;

  constructor(
    clock: Clock,
    measures: OwnMeasures,
    limits: { readonly stage: Int32Array; readonly externalMb: number },
  ) {
    this.#clock = clock;
    this.#measures = measures;
    this.#cells = limits.stage;
    this.#externalBytes = limits.externalMb * 1024 * 1024;
  }

  /** One of several calls is about to take the thread, which {@link rested} looks at together. */
  begin(): void {
    if (this.#begun++ === 0) this.enter();
  }

  /**
   * Calls that took the thread by {@link begin} have all given it back, and nothing else ran meanwhile. `blame` is told
   * before the thread ends, when it can only have been the last of them.
   */
  rested(blame: () => void): void {
    const begun = this.#begun;
    if (begun === 0) return;
    this.#begun = 0;
    if (!this.#hasHoarded) return;
    if (begun === 1) blame();
    this.end("external");
  }

  /** A call is about to take the thread: what the thread holds by now was hoarded by a timer, or by calls that wait. */
  enter(): void {
    this.#wasOver = this.#isOver;
    if (!this.#wasOver) return;
    this.#isDoubtful = true;
    this.look();
  }

  /** A call that took the thread by {@link enter} is about to give it back: what came since is its own doing. */
  leave(): void {
    if (this.#hasHoarded) this.end("external");
  }

  /** Looks, unless it has a moment ago. */
  look(): void {
    const now = this.#clock.now();
    if (now - this.#lastAt < LOOK_MS) {
      this.#isDoubtful = true;
      return;
    }
    const excess = this.#excess(this.#looks++ % LOOKS_BETWEEN === 0);
    // A look may take as long as a collection of garbage.
    this.#lastAt = this.#clock.now();
    const isDoubtful = this.#isDoubtful;
    this.#isDoubtful = false;
    if (excess === undefined) return;
    setEndedBy(this.#cells, excess);
    // Behind the answers that leave now: whoever gets them need not have been the one.
    if (isDoubtful) this.#clock.soon(this.#measures.end);
    else this.#measures.end();
  }

  /**
   * Looks because the main thread asks for it, which it does a few times a second at most. When the next look of its own
   * is due stays as it is: the call that hoards in between is to be known.
   */
  asked(): void {
    const excess = this.#excess(true);
    if (excess === undefined) return;
    setEndedBy(this.#cells, excess);
    this.#clock.soon(this.#measures.end);
  }

  /** Ends the thread for a reason that was found elsewhere. */
  end(reason: EndedBy): void {
    setEndedBy(this.#cells, reason);
    this.#measures.end();
  }

  /** Does the thread hold too much, which it did not when the call of now took it? */
  get #hasHoarded(): boolean {
    if (this.#wasOver || !this.#isOver) return false;
    this.#measures.collect();
    return this.#isOver;
  }

  get #isOver(): boolean {
    return this.#measures.external() > this.#externalBytes;
  }

  #excess(countsResources: boolean): EndedBy | undefined {
    const { collect, resources } = this.#measures;
    if (this.#isOver) {
      collect();
      if (this.#isOver) return "external";
    }
    return countsResources && resources() > MOST_RESOURCES ? "resources" : undefined;
  }
}
