import { abortWith } from "../../async/index.js";
import type { TroupeError } from "../../kernel/index.js";
import type { ActiveTurn } from "../life/index.js";

/** What runs on a worker and can be told to stop. */
export class UnderWay {
  /** Turns the main thread asked for, by its key for them. */
  readonly #turns = new Map<number, ActiveTurn>();
  /** Operations, host services and turns nobody holds, each with its session. */
  readonly #stops = new Map<AbortController, string>();
  /** How many turns have ended. */
  ended = 0;

  find(key: number): ActiveTurn | undefined {
    return this.#turns.get(key);
  }

  async turn<T>(key: number, turn: ActiveTurn, run: () => Promise<T>): Promise<T> {
    this.#turns.set(key, turn);
    try {
      return await run();
    } finally {
      this.ended++;
      this.#turns.delete(key);
    }
  }

  /** Does something with a signal that aborts with the given one, and when everything is told to stop. */
  async stoppable<T>(
    { sessionId, given }: { readonly sessionId: string; readonly given?: AbortSignal | undefined },
    run: (signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const stop = new AbortController();
    const letGo = abortWith(stop, given);
    this.#stops.set(stop, sessionId);
    try {
      return await run(stop.signal);
    } finally {
      this.#stops.delete(stop);
      letGo();
    }
  }

  /** Cancels whatever one session is at. */
  cancelSession(sessionId: string, reason: string): void {
    for (const turn of this.#turns.values()) if (turn.sessionId === sessionId) turn.cancel(reason);
    for (const [stop, id] of this.#stops) if (id === sessionId) stop.abort(reason);
  }

  cancelTurns(reason: string): void {
    for (const turn of this.#turns.values()) turn.cancel(reason);
  }

  /** Turns stay as their journals have them. */
  stopAll({ turns, others }: { readonly turns: TroupeError; readonly others: TroupeError }): void {
    for (const turn of this.#turns.values()) turn.suspend(turns);
    for (const stop of this.#stops.keys()) stop.abort(others);
  }
}
