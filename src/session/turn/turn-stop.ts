import { type Deferred, deferred, Stop } from "../../async/index.js";
import { type Cancellation, isDecided, type TurnOutcome, type TurnState } from "../../kernel/index.js";
import type { TurnJournal } from "../journal/index.js";
import type { TurnKey } from "../stored/index.js";
import type { TurnDeadline } from "./turn-deadline.js";

/** `idle`: nothing runs that could still be stopped. */
export type CancelAnswer = "cancelled" | "idle";

/** A turn as what stops it sees it. */
interface StoppableTurn {
  readonly turnId: string;
  readonly state: Pick<TurnState, "phase" | "outcome">;
  readonly journal: Pick<TurnJournal, "cancel" | "cancellation" | "isAhead">;
  readonly beginning: { readonly name: TurnKey | undefined };
}

/**
 * Stops what somebody asked for, as long as that may still be stopped: it waits, a turn of it runs, or it is between two
 * turns in different frames. Whoever is first says why. A cancellation that was accepted is in the turn's journal, and a
 * turn that is taken up again first finds all it had done before it heeds one: what its tools did is part of the history.
 */
export class TurnStop {
  readonly #stop = new Stop();
  #cancellation: Cancellation | undefined;
  #turn: StoppableTurn | undefined;
  #recorded: Promise<unknown> | undefined;
  /** Somebody cancelled before a turn began that could take it. */
  #untaken: Deferred<CancelAnswer> | undefined;
  #over = false;
  #next: TurnStop | undefined;
  /** The time limit of what was asked for. */
  deadline: TurnDeadline | undefined;

  /** What the turn does listens to it. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Undefined also when the runtime ends the turn for a reason of its own. */
  get cancellation(): Cancellation | undefined {
    return this.#cancellation;
  }

  /** Of the turn that runs. */
  get turnId(): string | undefined {
    return this.#turn?.turnId;
  }

  /** Ends the turn for a reason of the runtime's. */
  abort(reason: unknown): void {
    this.#stop.abort(reason);
  }

  /** Asks it to stop. Resolves to `cancelled` when that cannot be lost any more. */
  cancel(cancellation: Cancellation): Promise<CancelAnswer> {
    if (this.#next !== undefined) return this.#next.cancel(cancellation);
    if (this.#over || (this.#turn !== undefined && isEnding(this.#turn))) return this.#late();
    this.#cancellation ??= cancellation;
    if (this.#turn !== undefined && !isDecided(this.#turn.state)) return this.#take(this.#turn, cancellation);
    this.#untaken ??= deferred();
    return this.#untaken.promise;
  }

  /** Its time is up. Nothing is written down for it: time does not go back. */
  expire(cancellation: Cancellation): void {
    if (this.#over || this.#turn === undefined || isEnding(this.#turn)) return;
    this.#cancellation ??= cancellation;
    this.heed();
  }

  /** The turn begins. What was asked of it before is asked of it now. */
  begins(turn: StoppableTurn): void {
    this.#turn = turn;
    this.#recorded = undefined;
    // It was cancelled in an earlier life, and that is still in its journal.
    const { cancellation: kept } = turn.journal;
    this.#cancellation ??= kept;
    if (kept !== undefined) this.#recorded = Promise.resolve();
    if (this.#cancellation === undefined) return;
    const taken = this.#take(turn, this.#cancellation);
    this.#untaken?.resolve(taken);
    this.#untaken = undefined;
    taken.catch(() => undefined);
  }

  /** Tells the turn that it was cancelled, unless it still finds what it had done before. */
  heed(): void {
    if (this.#cancellation !== undefined && this.#turn?.journal.isAhead === false)
      this.#stop.abort(this.#cancellation.reason);
  }

  /** Who asks it to stop asks another one from now on: the turn that was taken up again. */
  handTo(next: TurnStop): void {
    this.#next = next;
    if (this.#cancellation === undefined) return;
    const taken = next.cancel(this.#cancellation);
    this.#untaken?.resolve(taken);
    taken.catch(() => undefined);
  }

  /** Nothing comes of it any more. */
  ended(): void {
    this.#over = true;
    this.deadline?.end();
    this.#untaken?.resolve("idle");
  }

  /** What was decided by a cancellation was cancelled, whoever asks again. */
  #late(): Promise<CancelAnswer> {
    return this.#recorded === undefined || this.#over ? IDLE : this.#recorded.then(() => "cancelled");
  }

  #take(turn: StoppableTurn, { deadline }: Cancellation): Promise<CancelAnswer> {
    this.heed();
    if (deadline !== true) this.#recorded ??= turn.journal.cancel(this.#cancellation as Cancellation);
    return this.#recorded === undefined ? CANCELLED : this.#recorded.then(() => "cancelled");
  }
}

const IDLE: Promise<CancelAnswer> = Promise.resolve("idle");
const CANCELLED: Promise<CancelAnswer> = Promise.resolve("cancelled");

/** It is decided, and nothing follows in another frame. */
function isEnding({ state }: StoppableTurn): boolean {
  return isDecided(state) && !leavesWork(state.outcome);
}

function leavesWork(outcome: TurnOutcome | undefined): boolean {
  return outcome?.type === "frame_switch" && outcome.task !== "";
}
