import { refusal } from "../errors.js";
import type { Message } from "../history/index.js";
import { isRecord } from "../json.js";
import { type FieldsOf, unknownField } from "../known-names.js";

/** How much of a long history the model is given. */
export interface HistoryWindow {
  /** Messages of the history at most; one more and the window is cut. */
  readonly maxMessages: number;
  /** Messages that are left when it is cut. Default: half of `maxMessages`. */
  readonly keepMessages?: number;
}

/**
 * The first message of a history of this length that is in the window. The place moves by whole blocks: between two cuts
 * every request begins with the same message, so that the provider's cache of it is good. It depends on the length alone,
 * and so a restart, a fork and a turn that is taken up again begin where everybody else does.
 *
 * @example
 * windowPlace(40, { maxMessages: 40, keepMessages: 20 }); // 0
 * windowPlace(41, { maxMessages: 40, keepMessages: 20 }); // 20, and so up to 60 messages
 */
export function windowPlace(messageCount: number, window: HistoryWindow): number {
  const { maxMessages, keepMessages = Math.floor(maxMessages / 2) } = window;
  if (messageCount <= maxMessages) return 0;
  const block = maxMessages - keepMessages;
  return Math.ceil((messageCount - maxMessages) / block) * block;
}

/**
 * The last message up to this index that a conversation can begin with: providers refuse a tool's result without its
 * call. Undefined when there is none among these.
 */
export function beginningBefore(messages: readonly Message[], index: number): number | undefined {
  for (let at = Math.min(index, messages.length - 1); at >= 0; at--) if (messages[at]?.role === "user") return at;
  return undefined;
}

const FIELDS: FieldsOf<HistoryWindow> = { maxMessages: true, keepMessages: true };

/** A window from outside, checked: `invalid_window` says what is wrong. */
export function checkWindow(window: unknown): HistoryWindow {
  if (!isRecord(window)) throw invalid("it is an object such as { maxMessages: 40 }");
  const unknown = unknownField(window, FIELDS, "window", "option");
  if (unknown !== undefined) throw invalid(unknown);
  const { maxMessages, keepMessages } = window;
  if (!isCount(maxMessages) || maxMessages < 2) throw invalid("maxMessages must be a whole number from 2");
  if (keepMessages !== undefined && !(isCount(keepMessages) && keepMessages >= 1 && keepMessages < maxMessages))
    throw invalid("keepMessages must be a whole number from 1, and less than maxMessages");
  return { maxMessages, ...(keepMessages !== undefined && { keepMessages }) };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value);
}

const invalid = refusal("invalid_window", "The window cannot be used");
