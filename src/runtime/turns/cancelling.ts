import { type Cancellation, type FieldsOf, invalidOptions, isRecord, unknownField } from "../../kernel/index.js";

export interface CancelOptions {
  /**
   * Keeps what was shown of an answer that is cut off, as a message with `interrupted: true`, through the response hooks;
   * the model is told that it was cut off. Default: true for a session's turn, false for a turn's own handle.
   */
  readonly keepPartial?: boolean;
}

const CANCEL_OPTIONS: FieldsOf<CancelOptions> = { keepPartial: true };

/** It is an outcome's message, and stored. */
const MAX_REASON_LENGTH = 4_096;

export const HOST_CANCELLED = "The host cancelled the turn.";

/** What a host said of a cancellation, checked. `keeps`: what is kept when it says nothing of it. */
export function cancellationOf(reason: unknown, options: CancelOptions | undefined, keeps: boolean): Cancellation {
  if (typeof reason !== "string" || reason.length > MAX_REASON_LENGTH)
    throw invalidOptions(`the reason of a cancellation is a text of at most ${MAX_REASON_LENGTH} characters`);
  if (options !== undefined && !isRecord(options)) throw invalidOptions("the options of a cancellation are an object");
  const unknown = unknownField(options ?? {}, CANCEL_OPTIONS, "a cancellation", "option");
  if (unknown !== undefined) throw invalidOptions(unknown);
  const { keepPartial = keeps } = options ?? {};
  if (typeof keepPartial !== "boolean") throw invalidOptions("keepPartial is true or false");
  return { reason, ...(keepPartial && { keepPartial: true as const }) };
}
