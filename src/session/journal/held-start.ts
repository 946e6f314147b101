import type { Clock, Timer } from "../../async/index.js";
import type { TurnStart } from "./unfinished-turn.js";

/** How long a turn's preparation may take before its beginning is written down by itself. */
const HELD_MS = 1_000;

interface HeldStartParts {
  readonly clock: Clock;
  readonly put: (start: object) => Promise<unknown>;
}

/**
 * The beginning of a turn that its caller asks for again should its worker die: kept back until what the turn is asked
 * with is known, and written in one row with it. Anything else that is to be written, and a preparation that takes long,
 * has it written first.
 */
export class HeldStart {
  readonly #parts: HeldStartParts;
  #start: (() => TurnStart) | undefined;
  #timer: Timer | undefined;

  constructor(parts: HeldStartParts) {
    this.#parts = parts;
  }

  hold(start: () => TurnStart): void {
    this.#start = start;
    this.#timer = this.#parts.clock.timeout(HELD_MS, () => void this.write()?.catch(() => undefined));
  }

  /** Writes it, with what is known by then; undefined when it is not kept back any more. */
  write(prepared?: object): Promise<unknown> | undefined {
    const start = this.#start;
    if (start === undefined) return undefined;
    this.drop();
    return this.#parts.put(prepared === undefined ? start() : { prepared, ...start() });
  }

  /** The turn is stored, or will never be: nobody begins it again. */
  drop(): void {
    this.#start = undefined;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
