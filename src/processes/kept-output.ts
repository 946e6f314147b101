import type { OutputView, ProcessOutput, ReadSpec } from "../kernel/index.js";

const FIRST_CAPACITY = 4 * 1024;

/**
 * The newest bytes of an output without end. They are read by their number, from 0; the oldest make room, and who comes too
 * late for some is told how many.
 *
 * @example
 * const output = new KeptOutput(4);
 * output.add(Buffer.from("abcdef"));
 * output.read({ from: 0, maxBytes: 64, as: "text" }); // { from: 2, next: 6, dropped: 2, text: "cdef", ended: false }
 */
export class KeptOutput {
  readonly #limit: number;
  /** A ring: byte n is at n modulo its length. */
  #ring = Buffer.alloc(0);
  #from = 0;
  #to = 0;
  #ended = false;
  #waiting: (() => void)[] = [];

  constructor(limit: number) {
    this.#limit = limit;
  }

  get view(): OutputView {
    return { from: this.#from, to: this.#to, ended: this.#ended };
  }

  add(chunk: Uint8Array): void {
    const kept = chunk.subarray(Math.max(0, chunk.length - this.#limit));
    this.#to += chunk.length - kept.length;
    if (kept.length < chunk.length) this.#from = this.#to;
    this.#makeRoom(kept.length);
    this.#write(kept);
    this.#wake();
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  read({ from, maxBytes, as }: Pick<ReadSpec, "from" | "maxBytes" | "as">): ProcessOutput {
    const begin = Math.min(Math.max(from, this.#from), this.#to);
    const bytes = this.#bytes(begin, Math.min(begin + maxBytes, this.#to));
    const dropped = Math.max(0, begin - from);
    if (as === "bytes") return this.#answer(begin, dropped, bytes.length, { bytes });
    const atEnd = this.#ended && begin + bytes.length === this.#to;
    const length = atEnd ? bytes.length : wholeCharacters(bytes);
    return this.#answer(begin, dropped, length, { text: new TextDecoder().decode(bytes.subarray(0, length)) });
  }

  /** Told once, when there is a byte behind this one or nothing comes any more. Answers with the function that forgets it. */
  onBehind(from: number, tell: () => void): () => void {
    if (this.#ended || this.#to > from) {
      tell();
      return () => undefined;
    }
    const look = () => {
      if (!this.#ended && this.#to <= from) return;
      forget();
      tell();
    };
    const forget = () => {
      this.#waiting = this.#waiting.filter((each) => each !== look);
    };
    this.#waiting.push(look);
    return forget;
  }

  #answer(
    from: number,
    dropped: number,
    length: number,
    content: Pick<ProcessOutput, "text" | "bytes">,
  ): ProcessOutput {
    const next = from + length;
    return { from, next, dropped, ended: this.#ended && next === this.#to, ...content };
  }

  #wake(): void {
    for (const look of [...this.#waiting]) look();
  }

  #makeRoom(length: number): void {
    const needed = Math.min(this.#to - this.#from + length, this.#limit);
    if (needed > this.#ring.length) {
      let capacity = Math.max(this.#ring.length, FIRST_CAPACITY);
      while (capacity < needed) capacity *= 2;
      const before = this.#bytes(this.#from, this.#to);
      this.#ring = Buffer.alloc(Math.min(capacity, this.#limit));
      const end = this.#to;
      this.#to = this.#from;
      this.#write(before);
      this.#to = end;
    }
    this.#from = Math.max(this.#from, this.#to + length - this.#limit);
  }

  #write(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    const at = this.#to % this.#ring.length;
    const first = Math.min(bytes.length, this.#ring.length - at);
    this.#ring.set(bytes.subarray(0, first), at);
    this.#ring.set(bytes.subarray(first), 0);
    this.#to += bytes.length;
  }

  #bytes(from: number, to: number): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(to - from);
    if (bytes.length === 0) return bytes;
    const at = from % this.#ring.length;
    const first = Math.min(bytes.length, this.#ring.length - at);
    bytes.set(this.#ring.subarray(at, at + first));
    bytes.set(this.#ring.subarray(0, bytes.length - first), first);
    return bytes;
  }
}

/** How many of the bytes are whole characters of UTF-8: one that is cut off is read with what follows. */
function wholeCharacters(bytes: Uint8Array): number {
  for (let back = 1; back <= 3 && back <= bytes.length; back++) {
    const byte = bytes[bytes.length - back] as number;
    // It goes on an earlier byte.
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}
