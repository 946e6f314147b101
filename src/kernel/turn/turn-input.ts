import { TroupeError } from "../errors.js";

/** A file that goes with a turn: its bytes, something stored before, or an address. */
export type AttachmentSource =
  | { readonly kind: "inline"; readonly mediaType: string; readonly bytes: Uint8Array; readonly name?: string }
  | {
      readonly kind: "stored";
      readonly mediaType: string;
      readonly hash: string;
      readonly bytes: number;
      readonly name?: string;
    }
  | { readonly kind: "url"; readonly mediaType: string; readonly url: string; readonly name?: string };

export type InputItem =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "attachment"; readonly source: AttachmentSource };

/** What a turn is asked with: a text, or texts and attachments in their order. */
export type TurnInput = string | { readonly items: readonly InputItem[] };

/** Which attachments a host lets in. */
export interface AttachmentPolicy {
  /** Addresses pass to the provider unread: all, none, or those of these hosts. Default none. */
  readonly urls: boolean | readonly string[];
  /** Of one attachment. */
  readonly maxBytes: number;
}

export const DEFAULT_ATTACHMENTS: AttachmentPolicy = { urls: false, maxBytes: 20 * 1024 * 1024 };
export const MAX_INPUT_LENGTH = 4 * 1024 * 1024;
const MAX_ITEMS = 256;
const MEDIA_TYPE = /^[a-z]+\/[a-z0-9.+-]+$/i;
const HASH = /^[A-Za-z0-9_-]{43}$/;

/**
 * The items of an input as a turn keeps them: empty text dropped, neighbouring text joined, attachments let in by the
 * policy. Throws `invalid_turn_input` with the reason; such a turn is recorded with the outcome `invalid_input`.
 */
export function normaliseInput(input: TurnInput, policy: AttachmentPolicy): readonly InputItem[] {
  const items = typeof input === "string" ? [{ type: "text", text: input } as const] : input.items;
  if (items.length > MAX_ITEMS) throw invalid(`it has ${items.length} items; ${MAX_ITEMS} are allowed`);
  const kept: InputItem[] = [];
  let length = 0;
  for (const item of items) {
    if (item.type === "attachment") {
      kept.push({ type: "attachment", source: admit(item.source, policy) });
      continue;
    }
    length += item.text.length;
    if (length > MAX_INPUT_LENGTH) throw invalid(`it has more than ${MAX_INPUT_LENGTH} characters`);
    const last = kept[kept.length - 1];
    if (last?.type === "text") kept[kept.length - 1] = { type: "text", text: last.text + item.text };
    else if (item.text !== "") kept.push(item);
  }
  // An empty turn is legal; it is an empty text.
  return kept.length === 0 ? [{ type: "text", text: "" }] : kept;
}

/** An input let in: its text, and its items when it is more than that. */
export interface AdmittedInput {
  readonly text: string;
  readonly items?: readonly InputItem[];
}

/** What a host may ask a turn with, in the form a session takes it. Throws as {@link normaliseInput} does. */
export function admitInput(input: TurnInput, policy: AttachmentPolicy): AdmittedInput {
  const items = normaliseInput(input, policy);
  const text = inputText(items);
  return items.some(({ type }) => type === "attachment") ? { text, items } : { text };
}

/** The text of an input, for hooks and whoever only reads. */
export function inputText(items: readonly InputItem[]): string {
  return items.reduce((text, item) => (item.type === "text" ? text + item.text : text), "");
}

function admit(source: AttachmentSource, policy: AttachmentPolicy): AttachmentSource {
  if (!MEDIA_TYPE.test(source.mediaType)) throw invalid(`${JSON.stringify(source.mediaType)} is no media type`);
  switch (source.kind) {
    case "inline":
      if (source.bytes.byteLength > policy.maxBytes)
        throw invalid(`an attachment has ${source.bytes.byteLength} bytes; ${policy.maxBytes} are allowed`);
      return source;
    case "stored":
      if (!HASH.test(source.hash)) throw invalid("a stored attachment needs the hash it was stored under");
      return source;
    case "url":
      return { ...source, url: admitUrl(source.url, policy.urls) };
  }
}

function admitUrl(text: string, allowed: AttachmentPolicy["urls"]): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== "https:" && url.protocol !== "http:"))
    throw invalid("an attachment's address must be an http(s) URL");
  const passes = typeof allowed === "boolean" ? allowed : allowed.includes(url.hostname);
  if (!passes) throw invalid(`attachments from ${url.hostname} are not allowed here`);
  return url.href;
}

function invalid(why: string): TroupeError {
  return new TroupeError("invalid_turn_input", `The turn's input cannot be used: ${why}.`);
}

/** Is this an input at all? What a program got wrong is refused at the call; what a user sent is a recorded turn. */
export function checkTurnInput(input: unknown): TurnInput {
  if (typeof input === "string") return input;
  const items = typeof input === "object" && input !== null ? (input as { items?: unknown }).items : undefined;
  if (!Array.isArray(items)) {
    const given = input === null ? "null" : typeof input;
    throw new TroupeError("invalid_turn_input", `A turn's input is a string or { items }, not ${given}.`);
  }
  for (const item of items as readonly Partial<Record<string, unknown>>[]) checkItem(item);
  return input as TurnInput;
}

function checkItem(item: Partial<Record<string, unknown>> | null): void {
  if (item?.type === "text" && typeof item.text === "string") return;
  const source = item?.source as Partial<Record<string, unknown>> | undefined;
  const named = item?.type === "attachment" && typeof source?.mediaType === "string";
  const whole =
    (source?.kind === "inline" && source.bytes instanceof Uint8Array) ||
    (source?.kind === "stored" && typeof source.hash === "string") ||
    (source?.kind === "url" && typeof source.url === "string");
  if (named && whole) return;
  throw new TroupeError(
    "invalid_turn_input",
    'An item is { type: "text", text } or { type: "attachment", source } with a mediaType and bytes, a hash or a url.',
  );
}
