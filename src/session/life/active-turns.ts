import { type Activity, ActivityBuffer, activitiesUpTo } from "../../kernel/index.js";
import { suspension } from "../journal/index.js";

/** Kept of a turn nobody listens to. */
const UNHEARD = activitiesUpTo(1_024);

/** A turn the main thread knows by its key: how to cancel it, and where its activities go. */
export class ActiveTurn {
  readonly sessionId: string;
  readonly #controller = new AbortController();
  readonly #send: (activity: Activity) => void;
  #listening: boolean;
  readonly #unheard = new ActivityBuffer(UNHEARD);

  constructor(options: {
    readonly sessionId: string;
    readonly listening: boolean;
    readonly send: (activity: Activity) => void;
  }) {
    this.sessionId = options.sessionId;
    this.#listening = options.listening;
    this.#send = options.send;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  cancel(reason: string): void {
    this.#controller.abort(reason);
  }

  /** Leaves the turn as its journal has it. */
  suspend(reason = suspension()): void {
    this.#controller.abort(reason);
  }

  /** Nobody listens: nothing crosses, but the last activities are kept for somebody who comes late. */
  readonly emit = (activity: Activity): void => {
    if (this.#listening) this.#send(activity);
    else this.#unheard.push(activity);
  };

  listen(): void {
    if (this.#listening) return;
    this.#listening = true;
    for (const activity of this.#unheard.takeAll()) this.#send(activity);
  }
}
