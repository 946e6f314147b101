import { TroupeError } from "./errors.js";
import { completionUnknown } from "./refusals.js";

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

/** A call that waits, as its key names it. */
export interface CompletionPlace {
  readonly sessionId: string;
  readonly turnId: string;
  /** The call's id, or one of its own when a call waits for a yes. */
  readonly callId: string;
}

/**
 * Names a tool call to whoever answers it later. Opaque to hosts, and fit for a URL: nobody can guess it, because the
 * last id in it has a random part.
 */
export function completionKeyOf(sessionId: string, turnId: string, callId: string): string {
  return KEY_PREFIX + toBase64Url(JSON.stringify([sessionId, turnId, callId]));
}

const KEY_PREFIX = "wait_";
const MAX_KEY = 8_192;

/** What a key names, also one that an older release handed out; `completion_unknown` when it is no key. */
export function placeOfCompletion(key: unknown): CompletionPlace {
  try {
    if (typeof key !== "string" || key.length > MAX_KEY) throw completionUnknown(String(key));
    const text = key.startsWith(KEY_PREFIX) ? fromBase64Url(key.slice(KEY_PREFIX.length)) : key;
    const [sessionId, turnId, callId] = JSON.parse(text) as unknown[];
    if (typeof sessionId === "string" && typeof turnId === "string" && typeof callId === "string")
      return { sessionId: checkSessionId(sessionId), turnId, callId };
  } catch {
    // Told below.
  }
  throw completionUnknown(String(key).slice(0, MAX_SESSION_ID_LENGTH));
}

function toBase64Url(text: string): string {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function fromBase64Url(text: string): string {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(binary, (each) => each.charCodeAt(0)));
}

/** The turn a message was added by, as its id says; undefined when it was no turn. */
export function turnOfMessage(messageId: string): number | undefined {
  const found = /^t(\d{1,15})\.(?:volatile\.)?\d+$/.exec(messageId);
  return found === null ? undefined : Number(found[1]);
}

/** A message that a turn sends from its n-th model call on and never stores. */
export function volatileIdOf(turnId: string, step: number): string {
  return `${turnId}.volatile.${step}`;
}

/** A turn's place in its session, from its id; undefined for what no turn is called. */
export function indexOfTurn(turnId: string): number | undefined {
  const found = /^t([1-9]\d{0,14})$/.exec(turnId);
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
