/**
 * One task at a time, in the order they were asked for. A task that fails does not stop the next.
 *
 * @example
 * const appends = new Serial();
 * await Promise.all([appends.run(first), appends.run(second)]);
 */
export class Serial {
  #last = NOTHING_BEFORE;
  #count = 0;

  /** Tasks that run or wait. */
  get size(): number {
    return this.#count;
  }

  run<T>(task: () => T | Promise<T>): Promise<T> {
    this.#count++;
    const ran = this.#last.then(task);
    const end = (): void => {
      this.#count--;
    };
    // Ahead of whoever awaits the task: they find it counted as ended.
    this.#last = ran.then(end, end);
    return ran;
  }

  /** Resolves when the last of the tasks known by now has ended, however it ended. */
  ended(): Promise<void> {
    return this.#last;
  }
}

const NOTHING_BEFORE: Promise<void> = Promise.resolve();
