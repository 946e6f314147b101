import { type Activity, messageOf, TroupeError } from "../kernel/index.js";

const KEPT_ACTIVITIES = 1024;

/** A turn the main thread knows by its key: how to cancel it, and where its activities go. */
export class ActiveTurn {
  readonly sessionId: string;
  readonly #controller = new AbortController();
  readonly #send: (activity: Activity) => void;
  #listening: boolean;
  #kept: Activity[] = [];
  #missed = 0;

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
    if (this.#listening) {
      this.#send(activity);
      return;
    }
    const last = this.#kept[this.#kept.length - 1];
    const joined = last === undefined ? undefined : joinDeltas(last, activity);
    if (joined !== undefined) this.#kept[this.#kept.length - 1] = joined;
    else this.#kept.push(activity);
    if (this.#kept.length > KEPT_ACTIVITIES) {
      this.#kept.shift();
      this.#missed++;
    }
  };

  listen(): void {
    if (this.#listening) return;
    this.#listening = true;
    if (this.#missed > 0) this.#send({ type: "gap", missed: this.#missed });
    for (const activity of this.#kept) this.#send(activity);
    this.#kept = [];
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

/** Two neighbouring deltas of one block are one longer delta. */
export function joinDeltas(first: Activity, second: Activity): Activity | undefined {
  if (first.type !== "text_delta" && first.type !== "reasoning_delta") return undefined;
  if (second.type !== first.type || second.blockId !== first.blockId) return undefined;
  return { ...first, text: first.text + second.text };
}
