import { TroupeError } from "../../kernel/index.js";
import {
  checkDenials,
  closeParentPort,
  closeProcessWide,
  Essentials,
  hidePorts,
  type OwnMeasures,
  ownMeasures,
} from "../../wire/index.js";
import { type PoolThreadData, toolOutOfMemory } from "./pool-calls.js";

const DEFAULT_EXTERNAL_MB = 256;

/** What calls of tools wait by; a pool thread has no references of its own to these. */
const WAITING: readonly (readonly [owner: object, name: string])[] = [
  [process, "nextTick"],
  ...["queueMicrotask", "setImmediate", "setTimeout", "setInterval", "structuredClone"].map(
    (name) => [globalThis, name] as const,
  ),
];

interface Own {
  readonly measures: OwnMeasures;
  readonly essentials: Essentials;
}

/**
 * What the tools of a pool thread share and must not spoil for each other: the functions of JavaScript and Node, and the
 * memory outside of its heap. A task that finds the thread spoiled does not begin there; one that spoils it fails, and
 * the thread is not used again.
 */
export class TaskThread {
  readonly #data: PoolThreadData;
  /** Taken when the first task with foreign code comes: before any of it is imported. */
  #own: Own | undefined;
  /** What the task of now found once its module was there. */
  #found: Essentials | undefined;

  constructor(data: PoolThreadData) {
    this.#data = data;
  }

  /** Ends the thread instead when an earlier task, or what that left behind, has spoiled it. */
  enter(): void {
    this.#own ??= confine(this.#data);
    this.#found = undefined;
    const { essentials, measures } = this.#own;
    if (essentials.areChanged || this.#holdsTooMuch(this.#own)) measures.end();
  }

  /** A module may replace what it likes while it is imported: its own calls run with that, and nobody else's. */
  hasLoaded(): void {
    const essentials = this.#own?.essentials;
    this.#found = essentials?.areChanged === true ? new Essentials(WAITING) : essentials;
  }

  /** Has the task spoiled the thread, and is that its failure? Whatever is said next is said by what was put back. */
  leave(): { readonly isSpent: boolean; readonly failure: TroupeError | undefined } {
    const own = this.#own as Own;
    const hasPatched = this.#found?.areChanged === true;
    const isChanged = hasPatched || own.essentials.areChanged;
    if (isChanged) own.essentials.restore();
    const isFull = this.#holdsTooMuch(own);
    const failure = hasPatched
      ? patched()
      : isFull
        ? toolOutOfMemory(`it kept more than ${this.#mb} MB in buffers`)
        : undefined;
    return { isSpent: isChanged || isFull, failure };
  }

  get #mb(): number {
    return this.#data.externalMb ?? DEFAULT_EXTERNAL_MB;
  }

  #holdsTooMuch({ measures: { external, collect } }: Own): boolean {
    const most = this.#mb * 1024 * 1024;
    if (external() <= most) return false;
    collect();
    return external() > most;
  }
}

/** Makes sure that the thread is denied what it must be, and takes from it what reaches past it. */
function confine({ denials }: PoolThreadData): Own {
  const measures = ownMeasures();
  if (denials !== undefined) checkDenials(denials);
  closeParentPort();
  hidePorts();
  // A `then` there would make every answer a promise that never settles. Whoever has all permissions may even that.
  if (process.permission !== undefined) Object.preventExtensions(Object.prototype);
  closeProcessWide();
  return { measures, essentials: new Essentials(WAITING) };
}

function patched(): TroupeError {
  return new TroupeError(
    "tool_patched_builtins",
    "The tool replaced functions of JavaScript or Node, such as Array.prototype.push, which other tools share with it. Its thread is not used again. Let it change copies of its own instead.",
  );
}
