import { Slots } from "./slots.js";

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
