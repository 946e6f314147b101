import { TroupeError } from "./errors.js";

export const MAX_SESSION_ID_LENGTH = 256;
// biome-ignore lint/suspicious/noControlCharactersInRegex: finding control characters is the point
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/;

// Half a character has no UTF-8 of its own, so two such ids would be one in a store.
const HALF_CHARACTER = /\p{Surrogate}/u;

/** Can a store keep this text under its own name? Not with control characters, nor with half of one. */
export function isStorableName(text: string): boolean {
  return !CONTROL.test(text) && !HALF_CHARACTER.test(text);
}

/** Throws `invalid_session_id` unless the id is a string of 1 to 256 characters without control characters. */
export function checkSessionId(id: unknown): string {
  const refuse = (why: string) =>
    new TroupeError(
      "invalid_session_id",
      `A session id must be 1 to ${MAX_SESSION_ID_LENGTH} printable characters: ${why}.`,
    );
  if (typeof id !== "string") throw refuse(`got ${id === null ? "null" : typeof id}`);
  if (id.length === 0) throw refuse("it is empty");
  if (id.length > MAX_SESSION_ID_LENGTH) throw refuse(`it has ${id.length}`);
  if (CONTROL.test(id)) throw refuse("it contains a control character");
  if (HALF_CHARACTER.test(id)) throw refuse("it contains half of a surrogate pair");
  return id;
}

/** The input that waits for the frame a turn switched to. */
export function frameTaskOf(turnId: string): string {
  return `${turnId}${FRAME_TASK}`;
}

/** The turn that switched and left this input; undefined for any other input. */
export function turnOfFrameTask(inputId: string): string | undefined {
  return inputId.endsWith(FRAME_TASK) ? inputId.slice(0, -FRAME_TASK.length) : undefined;
}

const FRAME_TASK = ":frame";

/** Names a tool call to whoever completes it later. Opaque to hosts. */
export function completionKeyOf(sessionId: string, turnId: string, callId: string): string {
  return JSON.stringify([sessionId, turnId, callId]);
}

/** The session a completion key belongs to; `completion_unknown` when it is no such key. */
export function sessionOfCompletion(key: string): string {
  try {
    const [sessionId, turnId, callId] = JSON.parse(key) as unknown[];
    if (typeof sessionId === "string" && typeof turnId === "string" && typeof callId === "string") return sessionId;
  } catch {
    // Told below.
  }
  throw new TroupeError("completion_unknown", "This is no completion key of a tool call.");
}

/** The turn a message was added by, as its id says; undefined when it was no turn. */
export function turnOfMessage(messageId: string): number | undefined {
  const found = /^t(\d{1,15})\.\d+$/.exec(messageId);
  return found === null ? undefined : Number(found[1]);
}

/** A turn's id, from its place in the session. */
export function turnIdOf(turnIndex: number): string {
  return `t${turnIndex}`;
}

/**
 * 53 bits that tell one text from another (cyrb53). Not for secrets and not against an adversary: for recognising
 * what was seen before, where a few bytes must do.
 */
export function fingerprint(text: string): number {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    high = Math.imul(high ^ unit, 2654435761);
    low = Math.imul(low ^ unit, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return 4294967296 * (2097151 & low) + (high >>> 0);
}
