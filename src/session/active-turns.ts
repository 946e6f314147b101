import { type Activity, ActivityBuffer, activitiesUpTo, messageOf, TroupeError } from "../kernel/index.js";

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

/** The reason of a signal that ends a turn here, but not for good. */
export function suspension(): TroupeError {
  return new TroupeError(
    "turn_suspended",
    "The runtime is closing. The turn is kept, and goes on when its session is opened again.",
  );
}

/** Why a turn was not taken up again, this time. */
export function notTakenUp(cause: unknown): TroupeError {
  if (cause instanceof TroupeError && cause.code === "turn_suspended") return cause;
  const message = `The turn could not be taken up again: ${messageOf(cause)}. It is kept, and goes on when its session is next opened.`;
  return new TroupeError("turn_suspended", message, { retryable: true, cause });
}

/** The turn neither goes on here nor is stored as it is. */
export function endsHere({ reason }: AbortSignal): boolean {
  return reason instanceof TroupeError && (reason.code === "turn_suspended" || reason.code === "store_lost");
}

export function isSuspended({ reason }: AbortSignal): boolean {
  return reason instanceof TroupeError && reason.code === "turn_suspended";
}
