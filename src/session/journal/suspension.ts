import { messageOf, TroupeError } from "../../kernel/index.js";

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
