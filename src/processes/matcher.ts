import { type Context, createContext, Script } from "node:vm";
import { TroupeError } from "../kernel/index.js";

/** How long the lines of one slice may take: first, and when that was not enough, which may be the machine's doing. */
const PATIENCE_MS = [100, 400] as const;
const SLICE_LINES = 1_000;
const SLICE_CHARS = 64 * 1024;

/** Regular expressions of plugins, on lines of strangers: one that goes back and forth without end is ended. */
export class Matcher {
  #context: Context | undefined;
  #script: Script | undefined;

  /** Which of the lines match. Throws `monitor_pattern_slow`. */
  test(pattern: RegExp, lines: readonly string[]): boolean[] {
    const found: boolean[] = [];
    for (let from = 0; from < lines.length; ) {
      let to = from;
      for (let chars = 0; to < lines.length && to - from < SLICE_LINES && chars < SLICE_CHARS; to++)
        chars += (lines[to] as string).length;
      found.push(...this.#slice(pattern, lines.slice(from, to)));
      from = to;
    }
    return found;
  }

  #slice(pattern: RegExp, lines: readonly string[]): readonly boolean[] {
    this.#context ??= createContext({});
    this.#script ??= new Script("found = lines.map((line) => pattern.test(line))");
    const found: boolean[] = [];
    Object.assign(this.#context, { lines, pattern, found });
    for (const timeout of PATIENCE_MS) {
      try {
        return [...(this.#script.runInContext(this.#context, { timeout }) as boolean[])];
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
      }
    }
    throw new TroupeError(
      "monitor_pattern_slow",
      `The pattern ${JSON.stringify(pattern.source)} did not end within ${PATIENCE_MS[1]} ms.`,
      { details: { pattern: pattern.source } },
    );
  }
}
