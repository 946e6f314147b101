import { getHeapStatistics } from "node:v8";
import type { Clock, Timer } from "../../async/index.js";
import { NO_PLUGIN_OPTIONS, type ParkedNotes, type ResidencyLimits } from "../calls/index.js";
import type { SessionActor } from "../life/index.js";
import type { Session } from "../state/index.js";

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

const NOTHING_LEFT: ParkedNotes = Object.freeze({ wasParked: true });

/** How often idle sessions are looked for, at most and at least. */
const SWEEP_MS = { least: 20, most: 5_000 };
/** Of the sessions in memory, how many are parked at once when memory is short. */
const PRESSED_SHARE = 4;

interface ResidencyParts {
  readonly clock: Clock;
  readonly heap: Heap;
  /** The heap stays full whatever is parked. */
  readonly onFull: (share: number) => void;
}

/** What is known here of a session in memory. */
export type Resident = Pick<SessionActor, "id" | "restedAt" | "state" | "park">;

/**
 * Which sessions of a worker are in memory, the longest idle first, and when one leaves it. A session leaves by itself
 * only: what its actor is asked to do here it does when nobody needs it.
 */
export class Residency<A extends Resident> {
  readonly #limits: ResidencyLimits;
  readonly #resident = new Map<string, A>();
  /** Known here and not in memory: parked, or come from another worker and not opened since. */
  readonly #away = new Map<string, ParkedNotes>();
  readonly #sweep: Timer | undefined;
  readonly #clock: Clock;
  readonly #heap: Heap;
  readonly #watch: HeapWatch;
  #roomWanted = false;

  constructor(limits: ResidencyLimits, { clock, heap, onFull }: ResidencyParts) {
    this.#limits = limits;
    this.#clock = clock;
    this.#heap = heap;
    const makeRoom = () => this.#park(this.#resident.size);
    this.#watch = new HeapWatch({ heap, limit: limits.recycleHeapShare, makeRoom, onFull });
    const watches = limits.heapShare < 1 || limits.recycleHeapShare !== null;
    if (!Number.isFinite(limits.parkAfterMs) && !watches) return;
    const every = Math.min(Math.max(limits.parkAfterMs / 4, SWEEP_MS.least), SWEEP_MS.most);
    this.#sweep = clock.interval(every, () => this.#parkIdle()).unref();
  }

  get(sessionId: string): A | undefined {
    return this.#resident.get(sessionId);
  }

  actors(): A[] {
    return [...this.#resident.values()];
  }

  get counts(): { readonly sessions: number; readonly parked: number } {
    let parked = 0;
    for (const { wasParked } of this.#away.values()) if (wasParked === true) parked++;
    return { sessions: this.#resident.size, parked };
  }

  isParked(sessionId: string): boolean {
    return this.#away.get(sessionId)?.wasParked === true;
  }

  isAway(sessionId: string): boolean {
    return this.#away.has(sessionId);
  }

  /** What an absent session left, which it keeps. */
  notesOf(sessionId: string): ParkedNotes | undefined {
    return this.#away.get(sessionId);
  }

  /** What an absent session left, once: it is about to be opened, or goes elsewhere. */
  take(sessionId: string): ParkedNotes | undefined {
    const notes = this.#away.get(sessionId);
    this.#away.delete(sessionId);
    return notes;
  }

  /** A session leaves memory, or comes from another worker; then it counts as parked only if it was parked there. */
  arrive(sessionId: string, notes: ParkedNotes): void {
    this.#away.set(sessionId, notes);
  }

  add(actor: A): void {
    this.#resident.set(actor.id, actor);
    if (this.#resident.size > this.#limits.maxResident) this.#makeRoomSoon();
  }

  remove(actor: A): void {
    if (this.#resident.get(actor.id) === actor) this.#resident.delete(actor.id);
  }

  /** A session has nothing to do. */
  rested(actor: A): void {
    if (this.#resident.get(actor.id) !== actor) return;
    actor.restedAt = this.#clock.now();
    if (this.#limits.parkAfterMs === 0) {
      actor.park();
      return;
    }
    this.#resident.delete(actor.id);
    this.#resident.set(actor.id, actor);
    if (this.#resident.size > this.#limits.maxResident) this.#makeRoomSoon();
  }

  close(): void {
    this.#sweep?.cancel();
  }

  /** When what is being done now is done: by then somebody who was busy may be idle. */
  #makeRoomSoon(): void {
    if (this.#roomWanted) return;
    this.#roomWanted = true;
    this.#clock.soon(() => {
      this.#roomWanted = false;
      this.#park(this.#resident.size - this.#limits.maxResident);
    });
  }

  #parkIdle(): void {
    const { parkAfterMs, heapShare } = this.#limits;
    const since = this.#clock.now() - parkAfterMs;
    for (const actor of this.#resident.values()) if (actor.restedAt <= since && actor.state === "idle") actor.park();
    if (this.#heap.share() > heapShare) this.#park(Math.ceil(this.#resident.size / PRESSED_SHARE));
    void this.#watch.look();
  }

  #park(count: number): void {
    let left = count;
    for (const actor of this.#resident.values()) {
      if (left <= 0) return;
      if (actor.state === "parking") left--;
      if (actor.state !== "idle") continue;
      actor.park();
      left--;
    }
  }
}

export function parkedNotesOf(session: Session): ParkedNotes {
  const { pluginOptions, stored } = session;
  const hasOptions = pluginOptions !== NO_PLUGIN_OPTIONS;
  // A session that is stored says itself whose it is.
  const identity = stored.head === undefined ? stored.identity : {};
  const { untold } = session.hooks.failures;
  const isPlain =
    !hasOptions && session.past.promptTokens === null && session.created.size === 0 && untold === undefined;
  if (isPlain && Object.keys(identity).length === 0) return NOTHING_LEFT;
  return {
    ...NOTHING_LEFT,
    ...identity,
    ...(hasOptions && { pluginOptions }),
    ...(session.past.promptTokens !== null && { promptTokens: session.past.promptTokens }),
    ...(session.created.size > 0 && { created: [...session.created] }),
    ...(untold !== undefined && { untold }),
  };
}

export function restoreParkedNotes(session: Session, { promptTokens, created = [], untold = [] }: ParkedNotes): void {
  session.past.promptTokens = promptTokens ?? null;
  for (const sessionId of created) session.created.add(sessionId);
  session.hooks.failures.restore(untold);
}
