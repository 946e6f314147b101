import { NO_ROOM, PlainWriter, readPlain } from "../../wire/index.js";

/**
 * Where a plugin host writes the states of its sessions: memory it shares with their session worker, which reads it once
 * the host is gone. A state costs no message, and is there before the answer that changed it leaves.
 *
 * A session has a block: a counter that says which of two halves is the newer one (none while it is 0), and the halves,
 * each the number of the message that its state leaves with, the state's length, and the state. The older half is written,
 * then the counter goes up: a thread that ends in the middle of it leaves the other half as it was. And one that ends before
 * the message has left leaves calls that will be made again: they go on from the half before it.
 *
 * Blocks have four sizes, and all blocks of a board the same. A state that outgrows its block gets a larger one for good.
 */
const LARGEST = 16_380;
const HALVES: readonly number[] = [252, 1_020, 4_092, LARGEST];
const HEADER = 8;
/** Where a half has its state's length, and where its state. */
const AT_LENGTH = 4;
const AT_STATE = 6;
/** In the place of a length: the state is told in another way. */
const NOT_HERE = 0xffff;
/** What a half has besides a state: what is before it, and what the writer keeps free behind it. */
const SPARE = AT_STATE + 9;
/** Trying a state that is too large costs as much as writing one that is not. */
const UNTRIED = 15;
/** A block of the largest size, 64 of the smallest. */
const BOARD_BYTES = blockBytes(LARGEST);
const BLOCKS = BOARD_BYTES / blockBytes(252);
/** Boards a session worker takes from one host: 128 MB, and of them 32 with blocks that are not of the smallest size. */
const MOST_BOARDS = 4096;
const MOST_LARGE_BOARDS = 1024;

/** What a host says of its boards: a new one with blocks of a size, or which block has a slot's state from now on. */
export type BoardNote =
  | readonly [memory: SharedArrayBuffer, size: number]
  | readonly [slot: number, life: number, block: number];

/** What the blocks of a board have in common. */
type Board = Pick<Block, "size" | "half" | "counters" | "bytes" | "writer">;

/**
 * A place on a board, with all that writing there takes: a state is written for nearly every answer. A class, so that V8
 * knows all blocks by one shape: by copies of an object it knew each by its own, and writing took twice as long.
 */
class Block {
  /** Boards are numbered as if each had blocks of the smallest size. */
  readonly number: number;
  readonly size: number;
  readonly counters: Int32Array;
  /** Its counter's place in `counters`. */
  readonly counter: number;
  readonly bytes: DataView;
  readonly writer: PlainWriter;
  /** Where its first half begins. */
  readonly halves: number;
  readonly half: number;
  /** What the counter says, as nobody else writes it. */
  count = 0;

  constructor({ size, half, counters, bytes, writer }: Board, nth: number, number: number) {
    const start = nth * blockBytes(half);
    this.number = number;
    this.size = size;
    this.counters = counters;
    this.counter = start / Int32Array.BYTES_PER_ELEMENT;
    this.bytes = bytes;
    this.writer = writer;
    this.halves = start + HEADER;
    this.half = half;
  }
}

/** Whose states are written: it keeps its place on the board itself, which saves a look-up. */
export interface BoardedSession {
  readonly number: number;
  readonly life: number;
  block?: Block | undefined;
  /** How many answers more its state is not tried, because it was too large for any block. */
  untried?: number;
}

/** The host's side, for the sessions of one lane. */
export class StateBoard {
  readonly #say: (note: BoardNote) => void;
  /** The number of the message that is about to leave; from 1 on. */
  readonly #message: () => number;
  #boards = 0;
  #largeBoards = 0;
  /** Where it is found out how large a state is. */
  readonly #trial = new PlainWriter(new DataView(new ArrayBuffer(LARGEST)));
  /** By size. */
  readonly #free: Block[][] = HALVES.map(() => []);
  /** By slot: the last is the one that counts, those before it were outgrown. */
  readonly #blocks = new Map<number, Block[]>();

  constructor(say: (note: BoardNote) => void, message: () => number) {
    this.#say = say;
    this.#message = message;
  }

  /** Writes a state; false when it is too large or not plain. What was written before it then counts no more. */
  write(session: BoardedSession, state: unknown): boolean {
    if (session.untried) {
      session.untried--;
      return false;
    }
    session.block ??= this.#blockOf(session);
    const { block } = session;
    if (block === undefined) return false;
    const message = this.#message();
    const end = writeTo(block, state, message);
    if (end >= 0) return true;
    if (end === NO_ROOM && this.#isWrittenLarger(session, state, message)) return true;
    if (end === NO_ROOM) session.untried = UNTRIED;
    setHalf(block, message, NOT_HERE);
    return false;
  }

  /** The slot is closed, or its instance is a new one. */
  release(slot: number): void {
    const blocks = this.#blocks.get(slot);
    if (blocks === undefined) return;
    this.#blocks.delete(slot);
    for (const block of blocks) {
      clear(block);
      this.#free[block.size]?.push(block);
    }
  }

  #blockOf(session: BoardedSession): Block | undefined {
    const known = this.#blocks.get(session.number)?.at(-1);
    if (known !== undefined) return known;
    const block = this.#take(0);
    return block && this.#give(session, block);
  }

  /**
   * The smallest block that is large enough takes the place of the one before it. That one stays the session's: it counts
   * until the note about the new one has left, together with the answer that made the state so large.
   */
  #isWrittenLarger(session: BoardedSession, state: unknown, message: number): boolean {
    const end = this.#trial.write(state, 0, LARGEST);
    const size = end < 0 ? -1 : HALVES.findIndex((half) => end + SPARE <= half);
    const block = size < 0 ? undefined : this.#take(size);
    if (block === undefined) return false;
    session.block = this.#give(session, block);
    return writeTo(block, state, message) >= 0;
  }

  #give({ number, life }: BoardedSession, block: Block): Block {
    const blocks = this.#blocks.get(number);
    if (blocks === undefined) this.#blocks.set(number, [block]);
    else blocks.push(block);
    this.#say([number, life, block.number]);
    return block;
  }

  /** Undefined when there are as many boards as a session worker takes. */
  #take(size: number): Block | undefined {
    const free = this.#free[size] as Block[];
    const isMore = this.#boards < MOST_BOARDS && (size === 0 || this.#largeBoards < MOST_LARGE_BOARDS);
    if (free.length === 0 && isMore) free.push(...this.#newBoard(size).reverse());
    return free.pop();
  }

  #newBoard(size: number): Block[] {
    const memory = new SharedArrayBuffer(BOARD_BYTES);
    const bytes = new DataView(memory);
    const half = HALVES[size] as number;
    const board: Board = { size, half, counters: new Int32Array(memory), bytes, writer: new PlainWriter(bytes) };
    const first = this.#boards++ * BLOCKS;
    if (size > 0) this.#largeBoards++;
    this.#say([memory, size]);
    return Array.from({ length: BOARD_BYTES / blockBytes(half) }, (_, n) => new Block(board, n, first + n));
  }
}

function blockBytes(half: number): number {
  return HEADER + 2 * half;
}

/** Writes a state where it counts next; answers as the writer does. */
function writeTo(block: Block, state: unknown, message: number): number {
  const half = nextHalf(block);
  const end = block.writer.write(state, half + AT_STATE, half + block.half);
  if (end >= 0) setHalf(block, message, end - half - AT_STATE);
  return end;
}

/** The older half is written, and counts. */
function setHalf(block: Block, message: number, length: number): void {
  const half = nextHalf(block);
  block.bytes.setUint32(half, message);
  block.bytes.setUint16(half + AT_LENGTH, length);
  const { count } = block;
  // Never 0 again, and odd and even take turns.
  setCount(block, count >= MOST_COUNTED ? 1 + (count & 1) : count + 1);
}

function nextHalf({ halves, half, count }: Block): number {
  return halves + ((count + 1) & 1) * half;
}

/** Nothing is left of what was in it. */
function clear(block: Block): void {
  setCount(block, 0);
  for (const half of [block.halves, block.halves + block.half]) block.bytes.setUint32(half, 0);
}

/** A plain store, a tenth of the price of an atomic one: it is read when the thread that wrote it is gone. */
function setCount(block: Block, count: number): void {
  block.count = count;
  block.counters[block.counter] = count;
}

const MOST_COUNTED = 2 ** 30;

/** The session worker's side: what a host that is gone wrote last. Nothing there is believed to be well formed. */
export class StateBoardReader {
  readonly #boards: { readonly memory: SharedArrayBuffer; readonly half: number }[] = [];
  readonly #blocks = new Map<number, { readonly life: number; readonly block: number }>();

  /** Takes a note of the host; throws a TypeError when it is none. */
  take(note: unknown): void {
    if (!Array.isArray(note)) throw new TypeError("It has a note about a board that no host sends.");
    if (note[0] instanceof SharedArrayBuffer) this.#takeBoard(note[0], HALVES[note[1] as number]);
    else this.#takePlace(note);
  }

  #takeBoard(memory: SharedArrayBuffer, half: number | undefined): void {
    if (memory.byteLength !== BOARD_BYTES || half === undefined || this.#boards.length >= MOST_BOARDS)
      throw new TypeError("It has no board.");
    this.#boards.push({ memory, half });
  }

  #takePlace(note: readonly unknown[]): void {
    if (note.length !== 3 || !note.every(Number.isInteger))
      throw new TypeError("It has a note about a board that no host sends.");
    const [slot, life, block] = note as [number, number, number];
    const board = this.#boards[Math.trunc(block / BLOCKS)];
    if (block < 0 || board === undefined || block % BLOCKS >= BOARD_BYTES / blockBytes(board.half))
      throw new TypeError("It names a block of no board.");
    this.#blocks.set(slot, { life, block });
  }

  release(slot: number): void {
    this.#blocks.delete(slot);
  }

  /** Every slot's last state of those that left with the first `received` messages, as far as it can be read. */
  *states(received: number): Iterable<{ readonly slot: number; readonly life: number; readonly state: unknown }> {
    for (const [slot, { life, block }] of this.#blocks) {
      const { memory, half } = this.#boards[Math.trunc(block / BLOCKS)] as { memory: SharedArrayBuffer; half: number };
      const bytes = new Uint8Array(blockBytes(half));
      // Copied first: what is read must not change meanwhile.
      bytes.set(new Uint8Array(memory, (block % BLOCKS) * bytes.length, bytes.length));
      const state = lastState(bytes, half, received);
      try {
        if (state !== undefined) yield { slot, life, state: readPlain(state) };
      } catch {
        // The plugin wrote there itself: its sessions go on from what was captured.
      }
    }
  }
}

/** The state in a block's newer half, or in the older one when the newer did not leave; undefined when there is none. */
function lastState(block: Uint8Array, half: number, received: number): Uint8Array | undefined {
  const view = new DataView(block.buffer);
  const count = new Int32Array(block.buffer, 0, 1)[0] as number;
  if (count === 0) return undefined;
  for (const place of [count & 1, (count + 1) & 1]) {
    const start = HEADER + place * half;
    const message = view.getUint32(start);
    if (message === 0 || message > received) continue;
    const length = view.getUint16(start + AT_LENGTH);
    if (length === NOT_HERE) return undefined;
    return block.subarray(start + AT_STATE, start + Math.min(AT_STATE + length, half));
  }
  return undefined;
}
