import type { Clock } from "./clock.js";

/**
 * Runs what is asked for behind the events that wait by now, all of it in one go. Each `soon` of its own would have the
 * microtasks and messages of one done before the next begins.
 *
 * @example
 * const together = new Together(clock);
 * for (const session of sessions) together.soon(() => session.begin()); // they begin in one turn of the loop
 */
export class Together {
  readonly #clock: Clock;
  #tasks: (() => void)[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A task that throws does so by itself, and keeps no other from running. */
  soon(task: () => void): void {
    if (this.#tasks.push(task) === 1) this.#clock.soon(this.#run);
  }

  readonly #run = (): void => {
    const tasks = this.#tasks;
    this.#tasks = [];
    for (const task of tasks) {
      try {
        task();
      } catch (error) {
        this.#clock.soon(() => {
          throw error;
        });
      }
    }
  };
}
