import { StringDecoder } from "node:string_decoder";
import { MAX_LINE } from "../kernel/index.js";

/** Of a line without end so much is kept until it ends. */
const MOST_KEPT = 4 * MAX_LINE;

/** Bytes as lines of text. */
export class Lines {
  readonly #decoder = new StringDecoder("utf8");
  #rest = "";

  /** The lines that end in these bytes. */
  add(chunk: Uint8Array): string[] {
    const text = this.#decoder.write(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    const lines = (this.#rest + text).split("\n");
    const rest = lines.pop() as string;
    this.#rest = rest.slice(0, MOST_KEPT);
    return lines.map(kept);
  }

  /** What stands behind the last line's end. */
  end(): string[] {
    const rest = this.#rest + this.#decoder.end();
    this.#rest = "";
    return rest === "" ? [] : [kept(rest)];
  }
}

function kept(line: string): string {
  return (line.endsWith("\r") ? line.slice(0, -1) : line).slice(0, MOST_KEPT);
}
