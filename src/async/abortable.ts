import { ignore } from "./deferred.js";

/**
 * Calls `listener` when the signal aborts, at once if it has already. The function it returns takes the listener off,
 * so that a signal that lives longer does not keep it.
 */
export function onAbort(signal: AbortSignal | undefined, listener: () => void): () => void {
  if (signal === undefined) return ignore;
  if (signal.aborted) {
    listener();
    return ignore;
  }
  const own = stops.get(signal);
  if (own !== undefined) return own.onAbort(listener);
  // One signal may serve any number of calls: from the eleventh listener on Node would warn of a leak.
  if (!quiet.has(signal)) {
    setMaxListeners ??= process.getBuiltinModule("node:events").setMaxListeners;
    setMaxListeners(0, signal);
    quiet.add(signal);
  }
  signal.addEventListener("abort", listener, { once: true });
  return () => signal.removeEventListener("abort", listener);
}
const quiet = new WeakSet<AbortSignal>();
let setMaxListeners: typeof import("node:events").setMaxListeners | undefined;

/** Something under way, as who ends it sees it. */
export type Stoppable = Pick<AbortController, "signal" | "abort">;

/**
 * An abort controller of our own. Its signal is like any other; but {@link onAbort} finds it here, so that listening costs
 * a place in a list and not two events of Node's: a turn is listened to for every call of its model.
 */
export class Stop {
  readonly #controller = new AbortController();
  readonly signal: AbortSignal = this.#controller.signal;
  #listeners: Set<() => void> | undefined;

  constructor() {
    stops.set(this.signal, this);
  }

  /** The first reason counts. A listener that throws takes nothing from the others. */
  abort(reason: unknown): void {
    if (this.signal.aborted) return;
    this.#controller.abort(reason);
    const thrown: unknown[] = [];
    for (const listener of this.#listeners ?? []) {
      try {
        listener();
      } catch (error) {
        thrown.push(error);
      }
    }
    this.#listeners = undefined;
    if (thrown.length > 0) throw thrown[0];
  }

  onAbort(listener: () => void): () => void {
    this.#listeners ??= new Set();
    this.#listeners.add(listener);
    return () => void this.#listeners?.delete(listener);
  }
}
const stops = new WeakMap<AbortSignal, Stop>();

/**
 * Aborts the controller with the signal, for the same reason, until the function it returns is called. Not
 * `AbortSignal.any`: a signal made by it is kept as long as the signals it was made of.
 */
export function abortWith(controller: Pick<AbortController, "abort">, signal: AbortSignal | undefined): () => void {
  return onAbort(signal, () => controller.abort(signal?.reason));
}

/** An abort ends the wait even when the called side ignores its signal. Rejects with the reason, or what `errorOf` makes of it. */
export function untilAborted<T>(
  calling: Promise<T>,
  signal: AbortSignal | undefined,
  errorOf: (signal: AbortSignal) => unknown = ({ reason }) => reason,
): Promise<T> {
  if (signal === undefined) return calling;
  return new Promise((resolve, reject) => {
    const letGo = onAbort(signal, () => reject(errorOf(signal)));
    calling.then(resolve, reject).finally(letGo);
  });
}
