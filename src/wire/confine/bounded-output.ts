import { type Clock, ignore } from "../../async/index.js";

/** Characters a thread of foreign code may write to each of its streams at once, and again with every second. */
const MOST_AT_ONCE = 256 * 1024;

/**
 * Gives this thread a `stdout` and `stderr` of its own. Node's are written by the main thread, message by message: code
 * that logs in a loop stops it for seconds. These write to the same files directly, no more than {@link MOST_AT_ONCE} a
 * second; what is over is left out, and the output says so. Nothing is read from `stdin`.
 */
export function boundOutput(clock: Clock): void {
  const { Readable, Writable } = process.getBuiltinModule("node:stream");
  const { writeSync } = process.getBuiltinModule("node:fs");
  const lazily = <T>(name: "stdin" | "stdout" | "stderr", make: () => T) => {
    let made: T | undefined;
    const get = () => {
      made ??= make();
      return made;
    };
    Object.defineProperty(process, name, { get, enumerable: true });
  };
  // The main thread has Node tell these streams when it could read more; these never wait for it.
  const told = Object.getOwnPropertySymbols(Object.getPrototypeOf(process.stdout)) as never[];
  const output = (fd: number) => {
    const bounded = new BoundedOutput(clock, (bytes) => writeSync(fd, bytes));
    const stream = new Writable({
      decodeStrings: false,
      write(chunk: string | Uint8Array, _encoding, done) {
        bounded.write(typeof chunk === "string" ? Buffer.from(chunk) : chunk);
        done();
      },
    });
    for (const symbol of told) stream[symbol] ??= ignore as never;
    return stream;
  };
  lazily("stdout", () => output(1));
  lazily("stderr", () => output(2));
  lazily("stdin", () => Readable.from([]));
}

/** Output that leaves at no more than a given pace. `write` answers how many bytes it has written. */
export class BoundedOutput {
  readonly #clock: Clock;
  readonly #write: (bytes: Uint8Array) => number;
  #left = MOST_AT_ONCE;
  #lastAt: number;
  #leftOut = 0;
  #isSaid = false;

  constructor(clock: Clock, write: (bytes: Uint8Array) => number) {
    this.#clock = clock;
    this.#write = write;
    this.#lastAt = clock.now();
  }

  write(bytes: Uint8Array): void {
    const now = this.#clock.now();
    this.#left = Math.min(MOST_AT_ONCE, this.#left + ((now - this.#lastAt) * MOST_AT_ONCE) / 1_000);
    this.#lastAt = now;
    // Once something was left out, a part of what may be written is waited for, so that whole lines come and not shreds.
    if (bytes.length > this.#left || (this.#leftOut > 0 && this.#left < MOST_AT_ONCE / 4)) {
      this.#leaveOut();
      return;
    }
    if (this.#leftOut > 0 && this.#say(`[troupe] ${this.#leftOut} writes of a plugin or tool were left out.\n`)) {
      this.#leftOut = 0;
      this.#isSaid = false;
    }
    this.#left -= bytes.length;
    if (!this.#writeAll(bytes)) this.#leaveOut();
  }

  /** Said at once: a thread that is ended from outside has no last word. */
  #leaveOut(): void {
    this.#leftOut++;
    this.#isSaid ||= this.#say(LEFT_OUT);
  }

  #say(text: string): boolean {
    return this.#writeAll(Buffer.from(text));
  }

  /** Whoever reads the output may be behind or gone: that is waited for shortly, and is no fault of the plugin's call. */
  #writeAll(bytes: Uint8Array): boolean {
    let at = 0;
    let tries = this.#leftOut === 0 ? TRIES : 1;
    while (at < bytes.length) {
      try {
        at += this.#write(bytes.subarray(at));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EAGAIN" || --tries === 0) return false;
        Atomics.wait(PAUSE, 0, 0, 1);
      }
    }
    return true;
  }
}

const LEFT_OUT = "[troupe] A plugin or tool writes more than 256 KB a second, or than is read: output is left out.\n";
/** Milliseconds a reader that is behind is waited for. */
const TRIES = 20;
const PAUSE = new Int32Array(new SharedArrayBuffer(4));
