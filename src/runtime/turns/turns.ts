import { admitInput, messageOf, TroupeError, type TurnInput } from "../../kernel/index.js";
import { type ActivityNote, type TurnExtras, unpackResult } from "../../session/index.js";
import type { Runtime } from "../places/index.js";
import { begin, end, type Residence } from "../places/index.js";
import { AskedTurn } from "./asked-turn.js";
import { Turn } from "./turn.js";

/** The turns hosts and sessions asked for, until they end. */
export class Turns {
  readonly #runtime: Runtime;
  readonly #turns = new Map<number, Turn>();
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
    const asked = new AskedTurn(this.#nextTurn++, sessionId, this.#admitted(input, given));
    let residence = this.#runtime.directory.of(sessionId);
    const { moving, closing } = residence;
    this.counts.asked++;
    let moved: Promise<Residence> | undefined;
    const turn: Turn = new Turn({
      start: async () => {
        try {
          if (this.#runtime.storeLost !== undefined) throw this.#runtime.storeLost;
          if (closing) throw beingClosed(sessionId);
          if (moved !== undefined) residence = await moved;
          const result = await asked.run(this.#runtime.worker(residence.worker));
          this.counts.finished++;
          return unpackResult(result);
        } catch (error) {
          this.counts.refused++;
          throw error;
        } finally {
          this.#turns.delete(asked.key);
          end(residence, turn);
        }
      },
      listen: () => asked.listen(),
      cancel: (reason) => asked.cancel(reason),
    });
    this.#turns.set(asked.key, turn);
    if (moving === undefined) {
      begin(residence, turn);
      residence.opened = true;
    } else if (!closing) {
      // Now and not when the turn starts: what is asked behind it must stay behind it.
      moved = this.#runtime.directory.take(sessionId, turn);
    }
    return turn;
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
