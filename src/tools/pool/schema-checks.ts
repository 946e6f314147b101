import { type Clock, Serial } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";
import { type Deadline, Deadlines } from "../../wire/index.js";
import type { ArgumentChecks, ArgumentsToCheck } from "../dispatch/index.js";
import { ToolPool } from "./pool.js";
import { CHECK_CELL } from "./pool-calls.js";

/** A second thread serves the others while one tries out a regular expression that has no end. */
const THREADS = 2;
/** A thread of these is small, and starting it again is what a caller would feel. */
const IDLE_MS = 60_000;
/** A check that two looks in a row found under way is stopped; so it may take half a second, and gets a second at most. */
const LOOK_MS = 500;
/** A check nobody could begin with for so many looks is refused too. */
const MAX_LOOKS = 60;

/**
 * Checks arguments by schemas that may take for ever, on threads of its own: a pattern that backtracks then costs the
 * call that met it, not the sessions of this thread. One session has one check at a time.
 *
 * @example
 * const checks = new SchemaChecks({ entry: new URL("../workers/tool.js", import.meta.url), clock });
 * await checks.check({ sessionId, toolName, schema, args, signal }); // undefined: they fit
 */
export class SchemaChecks implements ArgumentChecks {
  readonly #pool: ToolPool;
  readonly #deadlines: Deadlines;
  readonly #bySession = new Map<string, Serial>();

  constructor({ entry, clock }: { readonly entry: URL; readonly clock: Clock }) {
    this.#pool = new ToolPool({ entry, clock, maxThreads: THREADS, idleMs: IDLE_MS });
    this.#deadlines = new Deadlines(clock);
  }

  async check(request: ArgumentsToCheck): Promise<string | undefined> {
    const { sessionId } = request;
    const inOrder = this.#bySession.get(sessionId) ?? new Serial();
    this.#bySession.set(sessionId, inOrder);
    try {
      return await inOrder.run(() => this.#check(request));
    } finally {
      if (inOrder.size === 0) this.#bySession.delete(sessionId);
    }
  }

  /** Threads that are alive, and checks that run or wait for a thread. */
  stats() {
    return this.#pool.stats();
  }

  close(): Promise<void> {
    this.#deadlines.clear();
    return this.#pool.close();
  }

  async #check({ toolName, schema, args, signal }: ArgumentsToCheck): Promise<string | undefined> {
    const begun = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
    const late = new AbortController();
    const look = (looks: number, sawIt: boolean): Deadline =>
      this.#deadlines.add(LOOK_MS, () => {
        if (sawIt || looks >= MAX_LOOKS) late.abort(takesTooLong(toolName));
        else deadline = look(looks + 1, Atomics.load(begun, 0) === CHECK_CELL.begun);
      });
    let deadline = look(1, false);
    try {
      const ending = { signal: AbortSignal.any([signal, late.signal]), graceMs: 0 };
      return await this.#pool.check({ kind: "check", toolName, schema, args, begun }, ending);
    } finally {
      this.#deadlines.cancel(deadline);
    }
  }
}

function takesTooLong(toolName: string): TroupeError {
  return new TroupeError(
    "tool_check_timeout",
    `Checking the arguments of ${toolName} by its schema took too long. Give other arguments, or a schema whose patterns do not backtrack.`,
    { details: { toolName } },
  );
}
