import { type Clock, ignore } from "../../async/index.js";
import {
  type CancelledInput,
  type CheckpointKind,
  cancelInput as cancelPending,
  claimAtCheckpoint,
  claimForTurn,
  deferMissed,
  type PendingInput,
  addInput as withInput,
  withoutInputs,
} from "../../kernel/index.js";
import { encode } from "../../wire/index.js";
import type { ToldBy } from "../calls/index.js";
import { attachedTo, type Blobs, COMPONENT, Component, type StoredSession, storedParts } from "../stored/index.js";
import type { SessionLife } from "./session-life.js";

/**
 * The inputs that wait for a session. What a turn takes stays listed until the turn is stored: a turn that fails has
 * taken nothing, and one that commits has taken each exactly once.
 */
export class SessionInputs {
  #pending: readonly PendingInput[];
  #taken: readonly PendingInput[] = [];
  /** The list as it was when the running turn began to be stored. */
  #storing: readonly PendingInput[] | undefined;
  readonly component = new Component(COMPONENT.inputs);
  /** What was left for the first turn: stored when the session was made, and gone once it is taken. */
  readonly first = new Component(COMPONENT.firstInput);
  /** Told when something may wait for a turn. */
  onAdded: () => void = ignore;

  constructor(pending: readonly PendingInput[] = []) {
    this.#pending = pending;
  }

  get pending(): readonly PendingInput[] {
    return this.#pending;
  }

  /** What the running turn has not taken yet. */
  get untaken(): readonly PendingInput[] {
    return withoutInputs(this.#pending, this.#taken);
  }

  /** Is there something a turn could begin with? */
  get waitForTurn(): boolean {
    return this.#pending.length > 0 && this.untaken.some(({ waitsFor }) => waitsFor.kind === "next_turn");
  }

  add(input: PendingInput): PendingInput {
    const added = this.place(input);
    this.onAdded();
    return added;
  }

  /** Without telling that something waits: whoever stores it tells, once it is stored. */
  place(input: PendingInput): PendingInput {
    const added = withInput(this.#pending, input);
    this.#change(added.pending);
    return added.input;
  }

  /** Turns that were asked for: all of them wait from now on, or none. */
  addTurns(inputs: readonly PendingInput[]): void {
    this.#change(inputs.reduce((pending, input) => withInput(pending, input).pending, this.#pending));
    this.onAdded();
  }

  /** Is there a turn that was asked for, and is not taken yet? */
  get turnsWait(): boolean {
    return this.#pending.length > 0 && this.untaken.some(({ ownTurn }) => ownTurn === true);
  }

  /** An input the running turn has taken can no longer be taken back. */
  cancel(named: string): CancelledInput | "already_taken" {
    if (this.#taken.some(({ id, key }) => id === named || key === named)) return "already_taken";
    const { pending, result } = cancelPending(this.#pending, named);
    if (result === "cancelled") this.#change(pending);
    return result;
  }

  takeAtCheckpoint(turnId: string, checkpoint: CheckpointKind): readonly PendingInput[] {
    return this.#take(claimAtCheckpoint(this.untaken, turnId, checkpoint));
  }

  /** Those of the named inputs that still wait. */
  takeThese(inputIds: readonly string[]): readonly PendingInput[] {
    return this.#take(this.untaken.filter(({ id }) => inputIds.includes(id)));
  }

  takeForTurn(): readonly PendingInput[] {
    return this.#take(claimForTurn(this.untaken));
  }

  /** The turn's write is being planned: it stores the list without what the turn took, and what missed it waits for the next. */
  settle(): void {
    this.#storing = this.#pending;
    if (this.#pending.length > 0) this.component.change(encodeInputs(deferMissed(this.untaken)));
  }

  /** The turn is stored. Inputs that came or went meanwhile are stored with the next write. */
  turnStored(): void {
    const changed = this.#pending !== this.#storing;
    const rest = this.#pending.length === 0 ? this.#pending : deferMissed(this.untaken);
    this.#taken = [];
    this.#storing = undefined;
    if (changed) this.#change(rest);
    else this.#pending = rest;
  }

  /** The turn came to nothing: what it took waits again, for the next one. */
  turnFailed(): void {
    const wasToBeStored = this.#storing !== undefined;
    this.#taken = [];
    this.#storing = undefined;
    const all = deferMissed(this.#pending);
    if (wasToBeStored) this.#change(all);
    else this.#pending = all;
  }

  #change(pending: readonly PendingInput[]): void {
    this.#pending = pending;
    this.component.change(encodeInputs(pending));
  }

  #take(inputs: readonly PendingInput[]): readonly PendingInput[] {
    if (inputs.length > 0) this.#taken = [...this.#taken, ...inputs];
    return inputs;
  }
}

function encodeInputs(inputs: readonly PendingInput[]): Uint8Array | null {
  return inputs.length === 0 ? null : encode(inputs);
}

/** What of a session is needed to store what waits for it. */
interface InputSession {
  readonly inputs: SessionInputs;
  readonly stored: Pick<StoredSession, "head" | "reader" | "store">;
  readonly life: Pick<SessionLife, "unstoredTurn" | "unfinished">;
  readonly blobs: Blobs;
  readonly services: { readonly clock: Clock };
}

/**
 * Lets an input wait: for the running turn when there is one and it may still take it, otherwise for the next. Stored
 * before it is answered.
 */
export async function addInput(
  { inputs, stored, life, blobs, services }: InputSession,
  { text, items, key, boundary }: ToldBy<"addInput">,
): Promise<PendingInput> {
  const parts = items && (await storedParts(blobs, items));
  try {
    const input = inputs.add({
      id: services.clock.uuid(),
      text,
      waitsFor: placeBy({ life }, boundary),
      ...(parts !== undefined && { parts }),
      ...(key !== undefined && { key }),
    });
    await stored.store("input");
    return input;
  } finally {
    blobs.release(attachedTo(parts ?? []));
  }
}

/** What an input waits for: the running turn from this checkpoint on, when there is one, or else the next. */
export function placeBy(
  { life }: Pick<InputSession, "life">,
  boundary: CheckpointKind | undefined,
): PendingInput["waitsFor"] {
  // A turn that is about to be taken up again has its checkpoints before it.
  const { turnId } = life.unstoredTurn ?? life.unfinished ?? {};
  if (boundary === undefined || turnId === undefined) return { kind: "next_turn" };
  return { kind: "active_turn", turnId, boundary };
}

export async function cancelInput(
  { inputs, stored }: InputSession,
  named: string,
): Promise<CancelledInput | "already_taken"> {
  const result = inputs.cancel(named);
  if (result === "cancelled") await stored.store("input");
  return result;
}

/** What was left for the first turn; taken once. */
export async function takeFirstInput({ inputs, stored, life }: InputSession): Promise<string | null> {
  if (stored.head?.components[COMPONENT.firstInput] === undefined || inputs.first.dirty) return null;
  const reader = stored.reader();
  // Given up before it is read: whoever asks meanwhile finds it taken.
  inputs.first.change(null);
  const input = await reader.value<string>(COMPONENT.firstInput);
  if (life.unstoredTurn === undefined) await stored.store("first_input");
  return input ?? null;
}
