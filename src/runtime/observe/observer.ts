import { ReaderQueue } from "../../async/index.js";
import { ActivityBuffer, type BufferRules, type TroupeError } from "../../kernel/index.js";
import { joinEvents, type Observed } from "../../session/index.js";

/** Events one reader may leave unread before the older half is given up, and where the reader is told of it. */
const UNREAD: BufferRules<Observed> = {
  join: (last, next) => {
    const event = joinEvents(last.event, next.event);
    return event && { cursor: next.cursor, event };
  },
  limit: 4_096,
  keep: 2_048,
  gap: (_, { cursor }) => ({ cursor, event: { type: "gap", reason: "trimmed" } }),
};

/** What an observer needs of the runtime. */
export interface ObserverDriver {
  /** Begins, or begins again behind a cursor, and says where; rejects when the session cannot be opened or the cursor is none of its. */
  start(cursor: string | undefined): Promise<string>;
  stop(): void;
}

/**
 * One reader of a session's events. It never slows the session: what it does not read waits here, neighbouring deltas
 * joined, and when too much waits the oldest is given up and a gap announced. Leaving the loop ends the observation,
 * never a turn.
 */
export class Observer implements AsyncIterableIterator<Observed> {
  readonly #driver: ObserverDriver;
  #started: Promise<void> | undefined;
  #cursor: string | undefined;
  readonly #queue: ReaderQueue<Observed>;

  constructor(driver: ObserverDriver, cursor: string | undefined) {
    this.#driver = driver;
    this.#cursor = cursor;
    this.#queue = new ReaderQueue({ unread: new ActivityBuffer(UNREAD), onReturn: () => driver.stop() });
  }

  /** The runtime delivers here. */
  receive(observed: Observed): void {
    if (this.#queue.ended) return;
    this.#cursor = observed.cursor;
    this.#queue.push(observed);
  }

  /** The session's worker was replaced: goes on behind what was received; what was lost is announced. */
  async resume(): Promise<void> {
    if (this.#queue.ended || this.#started === undefined) return;
    try {
      await this.#driver.start(this.#cursor);
    } catch (error) {
      this.fail(error as TroupeError);
    }
  }

  async #start(): Promise<void> {
    const cursor = await this.#driver.start(this.#cursor);
    // What has been received meanwhile is further on.
    this.#cursor ??= cursor;
  }

  fail(error: TroupeError): void {
    this.#queue.end(error);
  }

  async next(): Promise<IteratorResult<Observed>> {
    this.#started ??= this.#start();
    await this.#started;
    return this.#queue.next();
  }

  async return(): Promise<IteratorResult<Observed>> {
    this.end();
    return { done: true, value: undefined };
  }

  end(): void {
    if (!this.#queue.ended) void this.#queue.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
