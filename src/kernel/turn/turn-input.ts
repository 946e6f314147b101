import { refusal, TroupeError } from "../errors.js";
import type { Part } from "../history/index.js";
import { sameJson } from "../json.js";

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

const invalid = refusal("invalid_turn_input", "The turn's input cannot be used");

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

/** Safe points inside a turn: all calls of a step have results; the model gave its answer. */
export type CheckpointKind = "after_work" | "before_completion";

/**
 * Input that waits for a turn: for the running one, to be delivered at one of its checkpoints, or for the next. All
 * functions are pure over the list, which is stored with the session.
 */
export interface PendingInput {
  readonly id: string;
  /** The caller's own name for it: asked for twice, it waits once. */
  readonly key?: string;
  readonly text: string;
  /** All of it, when it is more than a text. */
  readonly parts?: readonly Part[];
  readonly waitsFor:
    | {
        readonly kind: "active_turn";
        readonly turnId: string;
        /** The earliest checkpoint it may be delivered at. */
        readonly boundary: CheckpointKind;
      }
    | { readonly kind: "next_turn" };
  /** A turn that was asked for: nothing that waits beside it is joined to it. */
  readonly ownTurn?: boolean;
}

/** Inputs one turn takes at once, and inputs that may wait altogether. */
export const MAX_CLAIMED = 64;
export const MAX_PENDING = 1_024;

export type CancelledInput = "cancelled" | "not_found";

/**
 * Adds an input, unless its key says that it waits already. The same key with another text is a conflict; a full list
 * refuses.
 */
export function addInput(
  pending: readonly PendingInput[],
  input: PendingInput,
): { readonly pending: readonly PendingInput[]; readonly input: PendingInput } {
  const known = input.key === undefined ? undefined : pending.find(({ key }) => key === input.key);
  if (known !== undefined) {
    if (known.text === input.text && sameJson(known.parts, input.parts)) return { pending, input: known };
    throw new TroupeError("input_key_conflict", `An input with the key ${input.key} and another content is waiting.`, {
      details: { key: input.key },
    });
  }
  if (pending.length >= MAX_PENDING) {
    throw new TroupeError("inputs_full", `${MAX_PENDING} inputs are waiting already. Ask again when some were taken.`, {
      retryable: true,
      details: { limit: MAX_PENDING },
    });
  }
  return { pending: [...pending, input], input };
}

/** An input as parts of a message. */
export function partsOfInput({ text, parts }: Pick<PendingInput, "text" | "parts">): readonly Part[] {
  return parts ?? [{ type: "text", text }];
}

/** What a turn is given at a checkpoint, in the order it came; the rest goes on waiting. */
export function claimAtCheckpoint(
  pending: readonly PendingInput[],
  turnId: string,
  checkpoint: CheckpointKind,
): readonly PendingInput[] {
  return pending
    .filter(({ waitsFor }) => {
      if (waitsFor.kind !== "active_turn" || waitsFor.turnId !== turnId) return false;
      return waitsFor.boundary === "after_work" || checkpoint === "before_completion";
    })
    .slice(0, MAX_CLAIMED);
}

/** What the next turn begins with, in the order it came: one that has a turn of its own, or those before the next such. */
export function claimForTurn(pending: readonly PendingInput[]): readonly PendingInput[] {
  const waiting = pending.filter(({ waitsFor }) => waitsFor.kind === "next_turn").slice(0, MAX_CLAIMED);
  const own = waiting.findIndex(({ ownTurn }) => ownTurn === true);
  return own === -1 ? waiting : waiting.slice(0, Math.max(own, 1));
}

/** The list without what was delivered. */
export function withoutInputs(
  pending: readonly PendingInput[],
  delivered: readonly PendingInput[],
): readonly PendingInput[] {
  if (delivered.length === 0) return pending;
  const ids = new Set(delivered.map(({ id }) => id));
  return pending.filter(({ id }) => !ids.has(id));
}

/** A turn is over: what was meant for it and missed it waits for the next. */
export function deferMissed(pending: readonly PendingInput[]): readonly PendingInput[] {
  if (!pending.some(({ waitsFor }) => waitsFor.kind === "active_turn")) return pending;
  return pending.map((input) =>
    input.waitsFor.kind === "next_turn" ? input : { ...input, waitsFor: { kind: "next_turn" } },
  );
}

/** Takes an input back, by its id or its key. */
export function cancelInput(
  pending: readonly PendingInput[],
  named: string,
): { readonly pending: readonly PendingInput[]; readonly result: CancelledInput } {
  const kept = pending.filter(({ id, key }) => id !== named && key !== named);
  return { pending: kept, result: kept.length === pending.length ? "not_found" : "cancelled" };
}
