import { abortWith, Stop, type Stoppable } from "../../async/index.js";
import { type Activity, ActivityBuffer, activitiesUpTo, type TroupeError } from "../../kernel/index.js";
import { CallTable } from "../../wire/index.js";
import { TurnStop } from "../turn/index.js";

/** Kept of a turn nobody listens to. */
const UNHEARD = activitiesUpTo(1_024);

/** A turn the main thread knows by its key: how to stop it, and where its activities go. */
export class ActiveTurn {
  readonly sessionId: string;
  /** Cancels the turn; a suspension leaves it as its journal has it. */
  readonly stop = new TurnStop();
  readonly signal: AbortSignal = this.stop.signal;
  readonly #send: (activity: Activity) => void;
  #listening: boolean;
  readonly #unheard = new ActivityBuffer(UNHEARD);

  constructor(sessionId: string, listening: boolean, send: (activity: Activity) => void) {
    this.sessionId = sessionId;
    this.#listening = listening;
    this.#send = send;
  }

  /** Nobody listens: nothing crosses, but the last activities are kept for somebody who comes late. */
  readonly emit = (activity: Activity): void => {
    if (this.#listening) this.#send(activity);
    else this.#unheard.push(activity);
  };

  /** Does somebody listen? */
  get isHeard(): boolean {
    return this.#listening;
  }

  listen(): void {
    if (this.#listening) return;
    this.#listening = true;
    for (const activity of this.#unheard.takeAll()) this.#send(activity);
  }
}

/** What runs on a worker and can be told to stop. */
export class UnderWay {
  /** Turns the main thread asked for, by its key for them. */
  readonly #turns = new CallTable<{ readonly id: number; readonly turn: ActiveTurn }>();
  /** Operations, host services and turns nobody holds, each with its session. */
  readonly #stops = new Map<Stoppable, string>();
  /** How many turns have ended. */
  ended = 0;

  find(key: number): ActiveTurn | undefined {
    return this.#turns.get(key)?.turn;
  }

  async turn<T>(key: number, turn: ActiveTurn, run: () => Promise<T>): Promise<T> {
    this.#turns.add({ id: key, turn });
    try {
      return await run();
    } finally {
      this.ended++;
      this.#turns.delete(key);
    }
  }

  /** Does something with a signal that aborts with the given one, and when everything is told to stop: `stop`'s own. */
  async stoppable<T>(
    sessionId: string,
    run: (signal: AbortSignal) => Promise<T>,
    given?: AbortSignal | undefined,
    stop: Stoppable = new Stop(),
  ): Promise<T> {
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
  cancelSession(sessionId: string, reason: string | TroupeError): void {
    this.stopTurnsOf(sessionId, reason);
    for (const [stop, id] of this.#stops) if (id === sessionId) stop.abort(reason);
  }

  stopTurnsOf(sessionId: string, reason: string | TroupeError): void {
    for (const { turn } of this.#turns.values()) if (turn.sessionId === sessionId) turn.stop.abort(reason);
  }

  stopTurns(reason: string | TroupeError): void {
    for (const { turn } of this.#turns.values()) turn.stop.abort(reason);
  }

  /** Turns stay as their journals have them. */
  stopAll({ turns, others }: { readonly turns: TroupeError; readonly others: TroupeError }): void {
    this.stopTurns(turns);
    for (const stop of this.#stops.keys()) stop.abort(others);
  }
}
