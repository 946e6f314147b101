import type { WriteStream } from "node:tty";

/** Says on stderr what is being measured: one line rewritten in place on a terminal, plain lines otherwise. */
export class Progress {
  readonly #stream: WriteStream;
  readonly #started = performance.now();
  #last = "";

  constructor(stream: WriteStream = process.stderr) {
    this.#stream = stream;
  }

  readonly say = (line: string): void => {
    if (line === this.#last) return;
    this.#last = line;
    const seconds = ((performance.now() - this.#started) / 1000).toFixed(0).padStart(3);
    if (this.#stream.isTTY) this.#stream.write(`\r\x1b[2K${seconds} s  ${line}`.slice(0, this.#stream.columns + 5));
    else this.#stream.write(`${seconds} s  ${line}\n`);
  };

  /** Leaves the terminal as it was. */
  clear(): void {
    if (this.#stream.isTTY) this.#stream.write("\r\x1b[2K");
  }
}
