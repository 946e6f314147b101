import { isDeepStrictEqual } from "node:util";
import { TroupeError } from "../../kernel/index.js";
import type { HostMethod } from "../../plugin/index.js";

/** A host service that changes something, as it is asked for. */
export interface AskedService {
  readonly method: HostMethod;
  readonly args: readonly unknown[];
  /** When it aborts, the service was given up and has no answer. */
  readonly signal: AbortSignal | undefined;
}

/**
 * A plugin's call that asks for host services, and the answers it was given. It is the same object for as long as the
 * call may be made again: made again, the call is answered as it was, by the order in which it asks.
 */
export class AskingCall {
  /** Names the call within its turn, in every life of the turn alike; undefined for a call that no turn repeats. */
  readonly place: string | undefined;
  readonly #answers: { readonly asked: AskedService; readonly answer: Promise<unknown> }[] = [];
  #next = 0;
  /** The call does not repeat itself: nothing more is done for it. */
  #mismatch: TroupeError | undefined;
  #name: string | undefined;

  constructor(place: string | undefined) {
    this.place = place;
  }

  /** The call is made again, from its beginning. */
  again(): void {
    this.#next = 0;
  }

  /** Tells the call from others at the same place; `number` says how many of them asked before it. */
  name(number: (place: string) => number): string {
    const place = this.place ?? "";
    this.#name ??= `${place}:${number(place)}`;
    return this.#name;
  }

  /** The answer the call was given at this point when it was made before, or else what `answer` gives; `nth` counts from 0. */
  ask(asked: AskedService, answer: (nth: number) => Promise<unknown>): Promise<unknown> {
    if (this.#mismatch !== undefined) return Promise.reject(this.#mismatch);
    const nth = this.#next++;
    const known = this.#answers[nth];
    if (known !== undefined && isSame(known.asked, asked)) return known.answer;
    const given = known === undefined ? answer(nth) : Promise.reject(this.#askedOtherwise(nth, known.asked, asked));
    if (known === undefined) this.#answers[nth] = { asked, answer: given };
    given.catch((error: unknown) => {
      if (asked.signal?.aborted) delete this.#answers[nth];
      else if (error instanceof TroupeError && error.code === "replay_mismatch") this.#mismatch = error;
    });
    return given;
  }

  #askedOtherwise(nth: number, before: AskedService, now: AskedService): TroupeError {
    const what = before.method === now.method ? `${now.method} with other arguments` : `${now.method}`;
    return new TroupeError(
      "replay_mismatch",
      `${this.place ?? "The call"} is not repeating itself: when it was made before, service ${nth + 1} was ${before.method}, now it asks for ${what}.`,
      { details: { nth, recorded: before.method, given: now.method } },
    );
  }
}

function isSame(a: AskedService, b: AskedService): boolean {
  return a.method === b.method && isDeepStrictEqual(a.args, b.args);
}
