import { totalmem } from "node:os";
import type { Clock } from "../../async/index.js";
import { TroupeError } from "../../kernel/index.js";

/** Of the memory a process may use, what raises the alarm, and what it must be back under before the next one. */
const HIGH_SHARE = 0.85;
const CALM_SHARE = 0.75;
/** How often threads are asked to look at themselves while the alarm lasts. */
const ASK_MS = 1_000;

const MB = 1024 * 1024;

interface MemoryAlarmParts {
  readonly clock: Clock;
  /** What the process may use; default: what its container, or else the machine, has. */
  readonly limitMb: number | undefined;
  /** Memory of the whole process: of all threads, in their heaps and outside. */
  readonly rss: () => number;
  /** Asks every plugin host to look at what it holds; one that holds too much ends. */
  readonly ask: () => void;
  /** Told once for each alarm. */
  readonly warn: (error: TroupeError, memory: { readonly usedMb: number; readonly limitMb: number }) => void;
}

/**
 * Plugin hosts look at the memory they hold when they answer calls. One that nobody calls and that fills buffers from a
 * timer is found by this: when the process nears the memory it may have, every host is asked to look.
 */
export class MemoryAlarm {
  readonly #parts: MemoryAlarmParts;
  readonly #limitBytes: number;
  #raised = false;
  #askedAt = Number.NEGATIVE_INFINITY;

  constructor(parts: MemoryAlarmParts) {
    this.#parts = parts;
    this.#limitBytes = parts.limitMb === undefined ? memoryOfProcess() : parts.limitMb * MB;
  }

  look(): void {
    const { clock, rss, ask, warn } = this.#parts;
    const limitBytes = this.#limitBytes;
    const used = rss();
    if (used < limitBytes * (this.#raised ? CALM_SHARE : HIGH_SHARE)) {
      this.#raised = false;
      return;
    }
    if (clock.now() - this.#askedAt >= ASK_MS) {
      this.#askedAt = clock.now();
      ask();
    }
    if (this.#raised) return;
    this.#raised = true;
    const memory = { usedMb: Math.round(used / MB), limitMb: Math.round(limitBytes / MB) };
    const message = `The process uses ${memory.usedMb} of the ${memory.limitMb} MB it may have. Plugin threads that hold more than their externalMb are replaced; beyond the limit the system ends the process. Host fewer sessions (maxResident), give it more memory, or set memoryLimitMb if it may use more.`;
    warn(new TroupeError("memory_high", message, { details: memory }), memory);
  }
}

/** What the container, or else the machine, lets this process have. */
function memoryOfProcess(): number {
  const constrained = process.constrainedMemory();
  // Without a limit it is 0, or more than there is.
  return constrained > 0 ? Math.min(constrained, totalmem()) : totalmem();
}
