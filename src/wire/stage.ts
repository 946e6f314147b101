/**
 * Which call holds a thread, where other threads can read it: a few numbers in shared memory. A thread that serves calls
 * writes them, whoever judges it reads them. Plugin code runs in the thread that writes, so they are a hint for those who
 * read and never the only witness.
 */
const CELLS = 5;
/** Goes up by one when a call takes the thread and when it gives it back: odd while a call holds the thread. */
const PROGRESS = 0;
const LANE = 1;
const CALL = 2;
/** Who ended the thread; written by the main thread before it does. */
const END = 3;
/** Which plugin of its group the call is at. */
const MEMBER = 4;

/**
 * `itself`: nobody outside ended the thread, and how it ended is not known yet. `blocked`: the watchdog did. `asked`: an
 * operator or the runtime did. `exit`, `error`, `heap`: by its own exit, an error that nobody caught, a full heap.
 * `external`, `resources`, `patched`: it ended itself, because it held too much memory outside of its heap, or too many
 * timers, or because functions were replaced that it stands on. `malformed`: it sent what no lane sends.
 */
export type EndedBy =
  | "itself"
  | "blocked"
  | "asked"
  | "exit"
  | "error"
  | "heap"
  | "external"
  | "resources"
  | "patched"
  | "malformed";
const ENDED_BY: readonly EndedBy[] = [
  "itself",
  "blocked",
  "asked",
  "exit",
  "error",
  "heap",
  "external",
  "resources",
  "patched",
  "malformed",
];

/** What a plugin did to its thread, said of the plugin. */
export function wordsFor(by: EndedBy): string {
  switch (by) {
    case "blocked":
      return "blocked its thread for longer than its blockedMs";
    case "heap":
      return "used more heap than its heapMb";
    case "external":
      return "held more memory in buffers than its externalMb";
    case "resources":
      return "had more than 10,000 timers or other waiting resources";
    case "patched":
      return "replaced functions of JavaScript or Node that its thread cannot do without";
    case "malformed":
      return "sent messages on its thread's ports that are none of Troupe's";
    case "error":
      return "threw an error that nobody caught";
    case "exit":
    case "itself":
    case "asked":
      return "ended its thread";
  }
}

export function newStage(): Int32Array {
  return new Int32Array(new SharedArrayBuffer(CELLS * Int32Array.BYTES_PER_ELEMENT));
}

/**
 * The writing side, one for all lanes of a thread. Plain stores: an atomic one takes 7 ns, two of them are needed for each
 * call, and readers need no more than to see a call that lasts, or the last word of a thread that is gone.
 */
export class StageWriter {
  readonly #cells: Int32Array;
  #progress = 0;

  constructor(cells: Int32Array) {
    this.#cells = cells;
  }

  /** A call of this lane takes the thread. `started` is the lane's own cell: the last call it began. */
  enter(lane: number, started: Int32Array, call: number): void {
    started[0] = call;
    this.enterAgain(lane, call);
  }

  /** A call that began before and had waited for something takes the thread. */
  enterAgain(lane: number, call: number): void {
    const cells = this.#cells;
    cells[LANE] = lane;
    cells[CALL] = call;
    cells[PROGRESS] = ++this.#progress;
  }

  /** The call is at this plugin of the group. */
  at(member: number): void {
    this.#cells[MEMBER] = member;
  }

  /** The call goes on with another plugin: a new piece of work, which has the whole time that one may hold the thread. */
  next(member: number): void {
    this.#cells[MEMBER] = member;
    this.#progress += 2;
    this.#cells[PROGRESS] = this.#progress;
  }

  leave(): void {
    this.#cells[PROGRESS] = ++this.#progress;
  }
}

/** Which plugin of its group a call was at that held the thread. */
export function memberOf(cells: Int32Array): number {
  return Atomics.load(cells, MEMBER);
}

export function progressOf(cells: Int32Array): number {
  return Atomics.load(cells, PROGRESS);
}

/** Does a call hold the thread? */
export function isHeld(cells: Int32Array): boolean {
  return (progressOf(cells) & 1) === 1;
}

/**
 * Did the thread end by the call that held it? A thread that sent what it must not was ended later, by others: whichever
 * call held it by then need not have been the one.
 */
export function endedByCall(cells: Int32Array): boolean {
  return isHeld(cells) && endedBy(cells) !== "malformed";
}

export function setEndedBy(cells: Int32Array, by: EndedBy): void {
  if (by === "itself") return;
  // The first word counts: a lane that is lost because of it makes others say so again.
  Atomics.compareExchange(cells, END, 0, ENDED_BY.indexOf(by));
  Atomics.notify(cells, END);
}

export function endedBy(cells: Int32Array): EndedBy {
  return ENDED_BY[Atomics.load(cells, END)] ?? "itself";
}

/** TypeScript's lib of our target does not know it yet; Node 20 does. */
const { waitAsync } = Atomics as unknown as {
  waitAsync(cell: Int32Array, index: number, value: number): { readonly value: "not-equal" | Promise<unknown> };
};

/** As {@link endedBy}, once it is known: whoever had a lane to the thread learns of its end a moment before the main thread. */
export async function whenEndKnown(cells: Int32Array): Promise<EndedBy> {
  await waitAsync(cells, END, 0).value;
  return endedBy(cells);
}

/**
 * How far a call came on a thread that is gone. `held`: it held the thread. `begun`: it had begun and was waiting for
 * something, or its answer had not left. `unstarted`: it had not begun.
 */
export type CallFate = "held" | "begun" | "unstarted";

/** What a lane's caller reads of the thread at the other end. */
export interface StageView {
  readonly cells: Int32Array;
  readonly lane: number;
  readonly started: Int32Array;
}

export function fateOf({ cells, lane, started }: StageView, call: number): CallFate {
  if (endedByCall(cells) && cells[LANE] === lane && cells[CALL] === call) return "held";
  // The cell holds 32 bits and a busy lane makes more calls than that: compared as a distance.
  return ((call - Atomics.load(started, 0)) | 0) > 0 ? "unstarted" : "begun";
}
