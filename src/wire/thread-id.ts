import { readFileSync } from "node:fs";
import { setPriority } from "node:os";

/**
 * The number this thread has for the operating system, by which others can see how long it waited for a processor. Linux
 * tells it; elsewhere it is unknown.
 */
export function threadIdOfSystem(): number | undefined {
  try {
    const tid = Number.parseInt(readFileSync("/proc/thread-self/stat", "latin1"), 10);
    return Number.isSafeInteger(tid) ? tid : undefined;
  } catch {
    return undefined;
  }
}

/** Taken before it is closed for the plugins of this thread. */
const setPriorityOfThread = setPriority;
/** A thread that is this nice gets a tenth of a core that another wants too: a plugin still loads in a second. */
const BEHIND_OTHERS = 10;

/**
 * From now on this thread runs behind the others, and for good: going back takes privileges. Only Linux has a priority
 * for each thread; elsewhere it would be the process's, and nothing changes.
 */
export function runBehindOthers(): void {
  if (process.platform !== "linux") return;
  try {
    setPriorityOfThread(BEHIND_OTHERS);
  } catch {
    // Some sandboxes refuse it, and in a process that is nicer already there is nothing to do.
  }
}
