import { onAbort } from "../../async/index.js";
import { aborted, type TroupeError } from "../../kernel/index.js";

/** So many at once, the others in the order they came. */
export class Slots {
  readonly #count: number;
  readonly #queue = new Set<Waiting>();
  #taken = 0;

  constructor(count: number) {
    this.#count = count;
  }

  get taken(): number {
    return this.#taken;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** Resolves when a slot is the caller's, who frees it; rejects when the signal aborts first. */
  take(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(aborted(signal));
    if (this.#taken < this.#count) {
      this.#taken++;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#queue.delete(waiting);
        letGo();
      };
      const waiting: Waiting = {
        admit: () => {
          leave();
          resolve();
        },
        refuse: (error) => {
          leave();
          reject(error);
        },
      };
      this.#queue.add(waiting);
      const letGo = onAbort(signal, () => waiting.refuse(aborted(signal)));
    });
  }

  /** Hands the slot to who waits longest. */
  free(): void {
    const next = this.#queue.values().next().value;
    if (next === undefined) this.#taken--;
    else next.admit();
  }

  /** Rejects everybody who waits. */
  refuse(error: TroupeError): void {
    for (const waiting of [...this.#queue]) waiting.refuse(error);
  }
}

interface Waiting {
  admit(): void;
  refuse(error: TroupeError): void;
}

/** Keeps tools to the number of calls they can take at once, over all sessions of a worker. */
export class ToolLimits {
  readonly #slots = new Map<string, Slots>();

  /** Runs `call` when the tool has room. Waiting ends with the signal's abort. */
  async within<T>(
    {
      toolId,
      maxConcurrent,
      signal,
    }: { readonly toolId: string; readonly maxConcurrent: number; readonly signal: AbortSignal },
    call: () => Promise<T>,
  ): Promise<T> {
    let slots = this.#slots.get(toolId);
    if (slots === undefined) {
      slots = new Slots(maxConcurrent);
      this.#slots.set(toolId, slots);
    }
    await slots.take(signal);
    try {
      return await call();
    } finally {
      slots.free();
    }
  }
}
