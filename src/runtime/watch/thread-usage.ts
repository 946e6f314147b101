import { closeSync, openSync, readSync } from "node:fs";

/** What a thread has done so far, in milliseconds. */
export interface Usage {
  readonly burntMs: number;
  /** How long it waited for a processor. The system tells of a wait when it is over. */
  readonly waitedMs: number;
}

/** What the operating system says of one thread. */
export interface ThreadUsage {
  /** Undefined where the system says nothing, and when the thread has ended. */
  readonly usage: () => Usage | undefined;
  /** Is it on a processor, or waiting for one? A thread that sleeps, in `Atomics.wait` or in a native call, is not. */
  readonly isRunnable: () => boolean;
  readonly close: () => void;
}

/** Linux tells it in `/proc`. Elsewhere a thread never waits for a processor. */
export function usageOfThread(tid: number | undefined): ThreadUsage {
  // Kept open: reading again costs 2 µs (3 for the state), opening 29.
  const times = new KeptFile(tid, "schedstat");
  const state = new KeptFile(tid, "stat");
  return {
    usage: () => readUsage(times.read()),
    isRunnable: () => stateIn(state.read()) === "R",
    close() {
      times.close();
      state.close();
    },
  };
}

/** Nanoseconds on a processor, nanoseconds in the queue for one, and how often. */
function readUsage(schedstat: string): Usage | undefined {
  const [burnt, waited] = schedstat.split(" ", 2).map((ns) => Number(ns) / 1e6);
  // A kernel that does not count says three times 0, and no thread that we look at has never run.
  return burnt && waited !== undefined ? { burntMs: burnt, waitedMs: waited } : undefined;
}

/** `id (name) state …`; the name may hold anything, parentheses too. */
function stateIn(stat: string): string | undefined {
  const end = stat.lastIndexOf(")");
  return end === -1 ? undefined : stat[end + 2];
}

class KeptFile {
  #file: number | undefined;
  /** Enough for all of one file and for the beginning of the other, which is all that is looked at. */
  readonly #bytes = Buffer.alloc(128);

  constructor(tid: number | undefined, name: string) {
    if (tid === undefined) return;
    try {
      this.#file = openSync(`/proc/self/task/${tid}/${name}`, "r");
    } catch {
      this.#file = undefined;
    }
  }

  read(): string {
    if (this.#file === undefined) return "";
    try {
      return this.#bytes.toString("latin1", 0, readSync(this.#file, this.#bytes, 0, this.#bytes.length, 0));
    } catch {
      // The thread has ended.
      return "";
    }
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
    this.#file = undefined;
  }
}
