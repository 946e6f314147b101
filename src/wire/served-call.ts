/** The served side of a call. The signal is made on first use, because most hooks never look at it. */
export class ServedCall {
  /** The caller's number for it; 0 when no lane is between. */
  readonly id: number;
  #controller: AbortController | undefined;
  #cancelled = false;

  constructor(id = 0) {
    this.id = id;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#cancelled) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  cancel(): void {
    this.#cancelled = true;
    this.#controller?.abort();
  }
}
