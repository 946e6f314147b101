/** Lines of one update, at the most; of more the newest are kept. */
const MAX_LINES = 100;
const MAX_CHARS = 16 * 1024;
/** A line that is longer is cut. */
export const MAX_LINE = 2_000;
/** After so many times the pause it waits for, an update is made although more keeps coming. */
const LONGEST_PAUSES = 5;
const MINUTE_MS = 60_000;

/** What has come since the last update. */
export interface Gathered {
  readonly lines: readonly string[];
  /** Lines that came before those and made room. */
  readonly dropped: number;
}

/**
 * Lines on their way into updates: gathered until nothing has come for a while, and no more updates than may be in a
 * minute. However much comes, it stays small. Times are any clock's that goes on.
 *
 * @example
 * const gathering = new Gathering({ debounceMs: 200, maxPerMinute: 30 }, now);
 * gathering.add(["one"], now);
 * gathering.dueAt; // now + 200
 * gathering.take(now + 200); // { lines: ["one"], dropped: 0 }
 */
export class Gathering {
  readonly #debounceMs: number;
  readonly #msPerUpdate: number;
  readonly #most: number;
  #lines: string[] = [];
  #chars = 0;
  #dropped = 0;
  #first = 0;
  #last = 0;
  /** How many updates may be made by `#filledAt`. */
  #allowed: number;
  #filledAt: number;

  constructor(
    { debounceMs, maxPerMinute }: { readonly debounceMs: number; readonly maxPerMinute: number },
    now: number,
  ) {
    this.#debounceMs = debounceMs;
    this.#most = maxPerMinute;
    this.#msPerUpdate = MINUTE_MS / maxPerMinute;
    this.#allowed = maxPerMinute;
    this.#filledAt = now;
  }

  get isEmpty(): boolean {
    return this.#lines.length === 0;
  }

  add(lines: readonly string[], now: number): void {
    if (lines.length === 0) return;
    if (this.isEmpty) this.#first = now;
    this.#last = now;
    for (const line of lines) {
      const kept = cutLine(line);
      this.#lines.push(kept);
      this.#chars += kept.length;
    }
    let drop = Math.max(0, this.#lines.length - MAX_LINES);
    for (let n = 0; n < drop; n++) this.#chars -= (this.#lines[n] as string).length;
    while (this.#chars > MAX_CHARS) this.#chars -= (this.#lines[drop++] as string).length;
    if (drop === 0) return;
    this.#lines.splice(0, drop);
    this.#dropped += drop;
  }

  /** When the next update is to be made; undefined while there is nothing for one. */
  get dueAt(): number | undefined {
    if (this.isEmpty) return undefined;
    const quiet = Math.min(this.#last + this.#debounceMs, this.#first + LONGEST_PAUSES * this.#debounceMs);
    const missing = Math.max(0, 1 - this.#allowed);
    return Math.max(quiet, this.#filledAt + missing * this.#msPerUpdate);
  }

  /** What has come, as one update. The last one, when nothing comes any more, is made whatever the rate. */
  take(now: number): Gathered {
    const refilled = this.#allowed + (now - this.#filledAt) / this.#msPerUpdate;
    this.#allowed = Math.max(0, Math.min(this.#most, refilled) - 1);
    this.#filledAt = now;
    const gathered = { lines: this.#lines, dropped: this.#dropped };
    this.#lines = [];
    this.#chars = 0;
    this.#dropped = 0;
    return gathered;
  }
}

/** A line as far as it is told. */
export function cutLine(line: string): string {
  if (line.length <= MAX_LINE) return line;
  // Not in the middle of a character.
  const end = isHigh(line.charCodeAt(MAX_LINE - 2)) ? MAX_LINE - 2 : MAX_LINE - 1;
  return `${line.slice(0, end)}…`;
}

function isHigh(unit: number): boolean {
  return unit >= 0xd800 && unit < 0xdc00;
}
