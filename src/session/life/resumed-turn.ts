import { abortWith, type Deferred, deferred, ignore } from "../../async/index.js";
import type { Activity, TurnResult } from "../../kernel/index.js";
import { suspension } from "../journal/index.js";
import type { ActiveTurn } from "./active-turns.js";

/** A turn that is taken up again. Whoever asked for it may still be there, and comes back for it. */
export class ResumedTurn {
  readonly call: string | undefined;
  readonly settled: Deferred<TurnResult> = deferred();
  readonly #controller = new AbortController();
  #attached: ActiveTurn | undefined;

  constructor(call: string | undefined) {
    this.call = call;
    // Nobody may come back for it.
    this.result.catch(ignore);
  }

  get result(): Promise<TurnResult> {
    return this.settled.promise;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  emit(activity: Activity): void {
    this.#attached?.emit(activity);
  }

  /** From here on its activities go there, and it is cancelled from there. */
  attach(turn: ActiveTurn): void {
    this.#attached = turn;
    abortWith(this.#controller, turn.signal);
  }

  suspend(reason = suspension()): void {
    this.#controller.abort(reason);
  }
}
