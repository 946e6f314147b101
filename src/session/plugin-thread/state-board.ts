import { PlainWriter, readPlain } from "../../wire/index.js";

/**
 * Where a plugin host writes the states of its sessions: memory it shares with their session worker, which reads it once
 * the host is gone. A state costs no message, and is there before the answer that changed it leaves.
 *
 * A session has a block: a counter that says which of two halves counts (none while it is 0), and the halves, each the
 * length of what it holds and then that. The half that does not count is written, then the counter goes up: a thread that
 * ends in the middle of it leaves the other half as it was.
 */
const HALF = 252;
const HEADER = 8;
const BLOCK = HEADER + 2 * HALF;
const BLOCKS = 64;
const BOARD_BYTES = BLOCK * BLOCKS;
/** Boards a session worker takes from one host. */
const MOST_BOARDS = 4096;

/** What a host says of its boards: a new one, or which block has a slot's state from now on. */
export type BoardNote = SharedArrayBuffer | readonly [slot: number, life: number, block: number];

/** A place on a board, with all that writing there takes: a state is written for nearly every answer. */
interface Block {
  readonly number: number;
  readonly counters: Int32Array;
  /** Its counter's place in `counters`. */
  readonly counter: number;
  readonly bytes: DataView;
  readonly writer: PlainWriter;
  /** Where its first half begins. */
  readonly halves: number;
  /** What the counter says, as nobody else writes it. */
  count: number;
}

/** Whose states are written: it keeps its place on the board itself, which saves a look-up. */
export interface BoardedSession {
  readonly number: number;
  readonly life: number;
  block?: Block | undefined;
}

/** The host's side, for the sessions of one lane. */
export class StateBoard {
  readonly #say: (note: BoardNote) => void;
  #boards = 0;
  readonly #free: Block[] = [];
  /** By slot. */
  readonly #blocks = new Map<number, Block>();

  constructor(say: (note: BoardNote) => void) {
    this.#say = say;
  }

  /** Writes a state; false when it is too large or not plain. What was written before it then counts no more. */
  write(session: BoardedSession, state: unknown): boolean {
    session.block ??= this.#blockOf(session);
    const { block } = session;
    const { count } = block;
    const half = block.halves + ((count + 1) & 1) * HALF;
    const end = block.writer.write(state, half + 2);
    if (end < 0 || end > half + HALF) {
      setCount(block, 0);
      return false;
    }
    block.bytes.setUint16(half, end - half - 2);
    // Never 0 again, and odd and even take turns.
    setCount(block, count >= MOST_COUNTED ? 1 + (count & 1) : count + 1);
    return true;
  }

  /** The slot is closed, or its instance is a new one. */
  release(slot: number): void {
    const block = this.#blocks.get(slot);
    if (block === undefined) return;
    this.#blocks.delete(slot);
    setCount(block, 0);
    this.#free.push(block);
  }

  #blockOf({ number, life }: BoardedSession): Block {
    let block = this.#blocks.get(number);
    if (block === undefined) {
      block = this.#free.pop() ?? this.#newBoard();
      this.#blocks.set(number, block);
      this.#say([number, life, block.number]);
    }
    return block;
  }

  /** Answers its first block; the others are free. */
  #newBoard(): Block {
    const memory = new SharedArrayBuffer(BOARD_BYTES);
    const bytes = new DataView(memory);
    const shared = { counters: new Int32Array(memory), bytes, writer: new PlainWriter(bytes, 0, BOARD_BYTES) };
    const first = this.#boards++ * BLOCKS;
    this.#say(memory);
    const blocks = Array.from({ length: BLOCKS }, (_, n): Block => {
      const start = n * BLOCK;
      const counter = start / Int32Array.BYTES_PER_ELEMENT;
      return { ...shared, number: first + n, counter, halves: start + HEADER, count: 0 };
    });
    this.#free.push(...blocks.slice(1).reverse());
    return blocks[0] as Block;
  }
}

/** A plain store, a tenth of the price of an atomic one: it is read when the thread that wrote it is gone. */
function setCount(block: Block, count: number): void {
  block.count = count;
  block.counters[block.counter] = count;
}

const MOST_COUNTED = 2 ** 30;

/** The session worker's side: what a host that is gone wrote last. Nothing there is believed to be well formed. */
export class StateBoardReader {
  readonly #boards: SharedArrayBuffer[] = [];
  readonly #blocks = new Map<number, { readonly life: number; readonly block: number }>();

  /** Takes a note of the host; throws a TypeError when it is none. */
  take(note: unknown): void {
    if (note instanceof SharedArrayBuffer) {
      if (note.byteLength !== BOARD_BYTES || this.#boards.length >= MOST_BOARDS)
        throw new TypeError("It has no board.");
      this.#boards.push(note);
      return;
    }
    if (!Array.isArray(note) || note.length !== 3 || !note.every(Number.isInteger))
      throw new TypeError("It has a note about a board that no host sends.");
    const [slot, life, block] = note as [number, number, number];
    if (block < 0 || block >= this.#boards.length * BLOCKS) throw new TypeError("It names a block of no board.");
    this.#blocks.set(slot, { life, block });
  }

  release(slot: number): void {
    this.#blocks.delete(slot);
  }

  /** Every slot's last state, as far as it was written and can be read. */
  *states(): Iterable<{ readonly slot: number; readonly life: number; readonly state: unknown }> {
    for (const [slot, { life, block }] of this.#blocks) {
      const memory = this.#boards[Math.trunc(block / BLOCKS)] as SharedArrayBuffer;
      // Copied first: what is read must not change meanwhile.
      const bytes = new Uint8Array(BLOCK);
      bytes.set(new Uint8Array(memory, (block % BLOCKS) * BLOCK, BLOCK));
      const count = new Int32Array(bytes.buffer, 0, 1)[0] as number;
      if (count === 0) continue;
      const half = HEADER + (count & 1) * HALF;
      const length = new DataView(bytes.buffer).getUint16(half);
      try {
        yield { slot, life, state: readPlain(bytes.subarray(half + 2, half + 2 + Math.min(length, HALF - 2))) };
      } catch {
        // The plugin wrote there itself: its sessions go on from what was captured.
      }
    }
  }
}
