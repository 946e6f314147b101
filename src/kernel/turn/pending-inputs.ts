import { TroupeError } from "../errors.js";
import type { Part } from "../history/index.js";
import { sameJson } from "../json.js";
import type { CheckpointKind } from "./checkpoint.js";

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
