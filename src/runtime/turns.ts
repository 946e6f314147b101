import { admitInput, messageOf, TroupeError, type TurnInput } from "../kernel/index.js";
import { type ActivityNote, type TurnExtras, unpackResult } from "../session/index.js";
import { begin, end, type Residence } from "./directory.js";
import type { Runtime } from "./runtime.js";
import type { SessionWorker } from "./session-worker.js";
import { Turn } from "./turn.js";

/** What a turn's caller wants while it has not been sent. */
interface TurnWishes {
  listen?: true;
  cancel?: string;
}

/** The turns hosts and sessions asked for, until they end. */
export class Turns {
  readonly #runtime: Runtime;
  readonly #turns = new Map<number, Turn>();
  /** Of turns that wait for their session to move. */
  readonly #wishes = new Map<number, TurnWishes>();
  readonly counts = { asked: 0, finished: 0, refused: 0 };
  #nextTurn = 1;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  underWay(): Turn[] {
    return [...this.#turns.values()];
  }

  receive([key, activity]: ActivityNote): void {
    this.#turns.get(key)?.receive(activity);
  }

  ask(sessionId: string, input: TurnInput, given: TurnExtras = {}): Turn {
    this.#runtime.checkNotClosed();
    const { text, extras } = this.#admitted(input, given);
    let residence = this.#runtime.directory.of(sessionId);
    const { moving, closing } = residence;
    const key = this.#nextTurn++;
    this.counts.asked++;
    let moved: Promise<Residence> | undefined;
    const turn: Turn = new Turn({
      start: async (listen) => {
        try {
          if (this.#runtime.storeLost !== undefined) throw this.#runtime.storeLost;
          if (closing) throw beingClosed(sessionId);
          if (moved !== undefined) residence = await moved;
          const worker = this.#runtime.worker(residence.worker);
          const sent = worker.turn(
            extras === undefined ? [key, sessionId, text, listen] : [key, sessionId, text, listen, extras],
          );
          if (moved !== undefined) this.#tellWishes(key, worker);
          const result = await sent;
          this.counts.finished++;
          return unpackResult(result);
        } catch (error) {
          this.counts.refused++;
          throw error;
        } finally {
          this.#turns.delete(key);
          this.#wishes.delete(key);
          end(residence, turn);
        }
      },
      listen: () => this.#tell(key, residence, { listen: true }),
      cancel: (reason) => this.#tell(key, residence, { cancel: reason }),
    });
    this.#turns.set(key, turn);
    if (moving === undefined) {
      begin(residence, turn);
      residence.opened = true;
    } else if (!closing) {
      // Now and not when the turn starts: what is asked behind it must stay behind it.
      this.#wishes.set(key, {});
      moved = this.#runtime.directory.take(sessionId, turn);
    }
    return turn;
  }

  /** Tells a turn's worker what its caller wants; a turn that waits for its session to move is told later. */
  #tell(key: number, { worker }: Residence, wish: TurnWishes): void {
    const waiting = this.#wishes.get(key);
    if (waiting !== undefined) Object.assign(waiting, wish);
    else if (wish.cancel !== undefined) this.#runtime.worker(worker).cancel(key, wish.cancel);
    else this.#runtime.worker(worker).listen(key);
  }

  #tellWishes(key: number, worker: SessionWorker): void {
    const { listen, cancel } = this.#wishes.get(key) ?? {};
    this.#wishes.delete(key);
    if (listen === true) worker.listen(key);
    if (cancel !== undefined) worker.cancel(key, cancel);
  }

  /** The input as a session takes it; one that is of no use is still its session's to record. */
  #admitted(input: TurnInput, given: TurnExtras): { readonly text: string; readonly extras: TurnExtras | undefined } {
    try {
      const { text, items } = admitInput(input, this.#runtime.options.attachments);
      if (items !== undefined) return { text, extras: { ...given, items } };
      return { text, extras: Object.keys(given).length === 0 ? undefined : given };
    } catch (error) {
      return { text: "", extras: { ...given, invalid: messageOf(error) } };
    }
  }
}

function beingClosed(sessionId: string): TroupeError {
  return new TroupeError("session_closed", `Session ${sessionId} is closing. Ask again when it is closed.`, {
    retryable: true,
    details: { sessionId },
  });
}
