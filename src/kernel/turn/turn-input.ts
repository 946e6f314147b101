import { TroupeError } from "../errors.js";
import { type AttachmentPolicy, type AttachmentSource, admitAttachment, type Part } from "../history/index.js";
import { sameJson, wellFormed } from "../json.js";
import { invalidTurnInput } from "../refusals.js";

export type InputItem =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "attachment"; readonly source: AttachmentSource };

/** What a turn is asked with: a text, or texts and attachments in their order. */
export type TurnInput = string | { readonly items: readonly InputItem[] };

export const MAX_INPUT_LENGTH = 4 * 1024 * 1024;
const MAX_ITEMS = 256;

/**
 * The items of an input as a turn keeps them: empty text dropped, neighbouring text joined, attachments let in by the
 * policy. Throws `invalid_turn_input` with the reason; such a turn is recorded with the outcome `invalid_input`.
 */
export function normaliseInput(input: TurnInput, policy: AttachmentPolicy): readonly InputItem[] {
  const items = typeof input === "string" ? [{ type: "text", text: input } as const] : input.items;
  if (items.length > MAX_ITEMS) throw invalidTurnInput(`it has ${items.length} items; ${MAX_ITEMS} are allowed`);
  const kept: InputItem[] = [];
  let length = 0;
  for (const item of items) {
    if (item.type === "attachment") {
      kept.push({ type: "attachment", source: admitAttachment(item.source, policy, invalidTurnInput) });
      continue;
    }
    length += item.text.length;
    if (length > MAX_INPUT_LENGTH) throw invalidTurnInput(`it has more than ${MAX_INPUT_LENGTH} characters`);
    const last = kept[kept.length - 1];
    if (last?.type === "text") kept[kept.length - 1] = { type: "text", text: last.text + item.text };
    else if (item.text !== "") kept.push(item);
  }
  // An empty turn is legal; it is an empty text.
  return kept.length === 0 ? [{ type: "text", text: "" }] : wellFormed(kept);
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

/** An input with another text, where its first text stood; what else it has stays. */
export function withText<T extends InputItem | Part>(
  list: readonly T[],
  text: string,
): readonly (T | { readonly type: "text"; readonly text: string })[] {
  const first = Math.max(
    0,
    list.findIndex(({ type }) => type === "text"),
  );
  const before = list.slice(0, first);
  return [...before, { type: "text", text }, ...list.slice(first).filter(({ type }) => type !== "text")];
}

/** Is this an input at all? What a program got wrong is refused at the call; what a user sent is a recorded turn. */
export function checkTurnInput(input: unknown): TurnInput {
  if (typeof input === "string") return input;
  const items = typeof input === "object" && input !== null ? (input as { items?: unknown }).items : undefined;
  if (!Array.isArray(items)) {
    const given = input === null ? "null" : Array.isArray(input) ? "a list" : typeof input;
    throw invalidTurnInput(`it is a string or { items }, not ${given}`);
  }
  items.forEach(checkItem);
  return input as TurnInput;
}

function checkItem(item: Partial<Record<string, unknown>> | null, index: number): void {
  if (item?.type === "text" && typeof item.text === "string") return;
  const source = item?.source as Partial<Record<string, unknown>> | undefined;
  const named = item?.type === "attachment" && typeof source?.mediaType === "string";
  const whole =
    (source?.kind === "inline" && source.bytes instanceof Uint8Array) ||
    (source?.kind === "stored" && typeof source.hash === "string") ||
    (source?.kind === "url" && typeof source.url === "string");
  if (named && whole) return;
  throw invalidTurnInput(
    `items[${index}] is none: an item is { type: "text", text } or { type: "attachment", source }, with a source such as { kind: "inline", mediaType, bytes }, { kind: "stored", mediaType, hash } or { kind: "url", mediaType, url }`,
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
