import { ignore, onAbort } from "../../async/index.js";
import { aborted } from "../../kernel/index.js";

/**
 * A stream's events until the signal aborts. From then on nothing of it is waited for, whatever it does: one that ignores
 * its signal is told to end, and neither a late event nor a late failure of it reaches anybody.
 *
 * @example
 * for await (const event of untilGivenUp(model.stream(request, signal), signal)) collect(event);
 */
export function untilGivenUp<T>(events: AsyncIterable<T>, signal: AbortSignal): AsyncIterable<T> {
  return { [Symbol.asyncIterator]: () => new GivenUp(events[Symbol.asyncIterator](), signal) };
}

class GivenUp<T> implements AsyncIterator<T, undefined> {
  readonly #events: AsyncIterator<T>;
  readonly #signal: AbortSignal;
  /** One listener for the whole stream, and for each wait only what it calls. */
  readonly #letGo: () => void;
  #giveUp: () => void = ignore;

  constructor(events: AsyncIterator<T>, signal: AbortSignal) {
    this.#events = events;
    this.#signal = signal;
    this.#letGo = onAbort(signal, () => this.#giveUp());
  }

  /** One promise for each event, and none beside the stream's own: this is the hot path. */
  next(): Promise<IteratorResult<T, undefined>> {
    return new Promise((resolve, reject) => {
      const fails = (error: unknown): void => {
        this.#letGo();
        reject(error);
      };
      // A stream that was given up is told to end.
      this.#giveUp = () => {
        this.#end().catch(ignore);
        fails(aborted(this.#signal));
      };
      if (this.#signal.aborted) {
        this.#giveUp();
        return;
      }
      try {
        this.#events.next().then((result) => {
          if (result.done !== true) {
            resolve(result);
            return;
          }
          this.#letGo();
          resolve({ done: true, value: undefined });
        }, fails);
      } catch (error) {
        fails(error);
      }
    });
  }

  /** Its reader has what it wants. What goes wrong when the stream clears up changes nothing of that. */
  return(): Promise<IteratorResult<T, undefined>> {
    return new Promise((resolve) => {
      const left = (): void => {
        this.#letGo();
        resolve({ done: true, value: undefined });
      };
      this.#giveUp = left;
      // Told to end in any case; waited for as long as nobody gives it up.
      this.#end().then(left, left);
      if (this.#signal.aborted) left();
    });
  }

  async #end(): Promise<unknown> {
    return this.#events.return?.();
  }
}
