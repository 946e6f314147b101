import { getHeapStatistics } from "node:v8";

/** A thread's heap. */
export interface Heap {
  /** How full it is, of 1; garbage that nobody has collected counts. */
  share(): number;
  /** Collects the garbage. It stops the thread for as long as that takes. */
  collect(): Promise<void>;
}

export const threadHeap: Heap = {
  share() {
    const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
    return used / limit;
  },
  async collect() {
    try {
      // Not in every build of Node, and not under its permission model: then what is used is all there is to go by.
      const { Session } = await import("node:inspector");
      const inspector = new Session();
      inspector.connect();
      await new Promise<void>((resolve) => inspector.post("HeapProfiler.collectGarbage", () => resolve()));
      inspector.disconnect();
    } catch {}
  },
};

interface HeapWatchOptions {
  /** Above it the heap is full; null: never. */
  readonly limit: number | null;
  /** Has everything leave the heap that can. */
  readonly makeRoom: () => void;
  /** The heap is full, and nothing here can be done about it. */
  readonly onFull: (share: number) => void;
  readonly heap: Heap;
}

/** Looks after which a collection, or saying it, is tried again. */
const AGAIN = 12;
/** How much of a full heap must have come since the thread began: otherwise a new thread would soon be as full. */
const GROWN = 0.25;

/**
 * Finds out whether a heap stays full: it is above the limit in two looks in a row, what could leave it was sent away
 * after the first, and the garbage was collected after the second. That is rare, so the collection may cost something.
 */
export class HeapWatch {
  readonly #options: HeapWatchOptions;
  readonly #atFirst: number;
  /** Looks in a row that found it full; below 0 while a collection has helped. */
  #seen = 0;

  constructor(options: HeapWatchOptions) {
    this.#options = options;
    this.#atFirst = options.heap.share();
  }

  /** To be called now and then. */
  async look(): Promise<void> {
    const { limit, makeRoom, onFull, heap } = this.#options;
    if (limit === null) return;
    if (heap.share() <= limit) {
      if (this.#seen > 0) this.#seen = 0;
      else if (this.#seen < 0) this.#seen++;
      return;
    }
    this.#seen++;
    if (this.#seen === 1) makeRoom();
    if (this.#seen < 2 || (this.#seen - 2) % AGAIN !== 0) return;
    await heap.collect();
    const share = heap.share();
    if (share <= limit) this.#seen = -AGAIN;
    else if (share * (1 - GROWN) > this.#atFirst) onFull(share);
  }
}
