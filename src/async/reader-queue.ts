import { type Deferred, deferred } from "./deferred.js";

/** Where items wait that nobody has read. An array does; another one may join neighbours, or give up the oldest. */
export interface Unread<T> {
  push(item: T): unknown;
  shift(): T | undefined;
}

export interface ReaderQueueOptions<T> {
  /** Default: an array, which keeps every item. */
  readonly unread?: Unread<T>;
  /** The reader has left the loop. */
  readonly onReturn?: () => void;
}

/**
 * What one reader reads with `for await`. Items go straight to a reader that waits; otherwise they wait in `unread`.
 * Pushing never waits for the reader.
 */
export class ReaderQueue<T> implements AsyncIterableIterator<T> {
  readonly #unread: Unread<T>;
  readonly #onReturn: (() => void) | undefined;
  readonly #waiting: Deferred<IteratorResult<T>>[] = [];
  #ended = false;
  #error: unknown;

  constructor({ unread = [], onReturn }: ReaderQueueOptions<T> = {}) {
    this.#unread = unread;
    this.#onReturn = onReturn;
  }

  get ended(): boolean {
    return this.#ended;
  }

  push(item: T): void {
    if (this.#ended) return;
    const waiting = this.#waiting.shift();
    if (waiting === undefined) this.#unread.push(item);
    else waiting.resolve({ done: false, value: item });
  }

  /** Nothing more will come. What is unread can still be read; behind it an error is thrown once. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    for (const { resolve } of this.#waiting.splice(0)) resolve(this.#end());
  }

  next(): Promise<IteratorResult<T>> {
    const item = this.#unread.shift();
    if (item !== undefined) return Promise.resolve({ done: false, value: item });
    if (this.#ended) return this.#end();
    const waiting = deferred<IteratorResult<T>>();
    this.#waiting.push(waiting);
    return waiting.promise;
  }

  /** The reader leaves: what is unread is dropped. */
  return(): Promise<IteratorResult<T>> {
    while (this.#unread.shift() !== undefined);
    this.end();
    this.#error = undefined;
    this.#onReturn?.();
    return this.#end();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async #end(): Promise<IteratorResult<T>> {
    const error = this.#error;
    this.#error = undefined;
    if (error !== undefined) throw error;
    return { done: true, value: undefined };
  }
}
