import { ignore, onAbort, ReaderQueue } from "../../async/index.js";
import { ActivityBuffer, type BufferRules, type TroupeError } from "../../kernel/index.js";
import { joinEvents, type Observed, type ObservedNote } from "../../session/index.js";
import type { Runtime } from "../places/index.js";
import { type ChildActivity, type ObserveOptions, type ObserveStart, readObserveOptions } from "../sessions/index.js";
import type { SessionWorker } from "../threads/index.js";

interface Watching {
  readonly sessionId: string;
  readonly observer: Observer;
  readonly children: boolean;
}

/** Who watches which session, wherever it is. */
export class Observers {
  readonly #runtime: Runtime;
  readonly #watching = new Map<number, Watching>();
  /** How many of them want to see children too. */
  #withChildren = 0;
  #nextReader = 1;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  observe(sessionId: string, options: ObserveOptions): Observer {
    this.#runtime.checkNotClosed();
    const { from, signal, children } = readObserveOptions(sessionId, options);
    const reader = this.#nextReader++;
    let at: SessionWorker | undefined;
    const observer: Observer = new Observer(
      {
        start: (from) =>
          this.#runtime.use(sessionId, (worker) => {
            at = worker;
            return worker.ask("observe", { sessionId, reader, from });
          }),
        stop: () => {
          if (this.#watching.delete(reader) && children) this.#withChildren--;
          // Whoever left does not wait for the worker to hear of it.
          if (!this.#runtime.isClosing) at?.ask("unobserve", { sessionId, reader }).catch(ignore);
        },
      },
      { from, signal },
    );
    this.#watching.set(reader, { sessionId, observer, children });
    if (children) this.#withChildren++;
    return observer;
  }

  /** Something happened in a turn that a session started in another one: told to who asked for it, up its line. */
  childActivity(line: readonly string[], happened: ChildActivity): void {
    if (this.#withChildren === 0) return;
    const { sessionId, turnId, activity } = happened;
    for (const { sessionId: watched, observer, children } of this.#watching.values()) {
      const depth = children ? line.indexOf(watched) + 1 : 0;
      if (depth > 0) observer.beside({ type: "activity", turnId, activity, child: { sessionId, depth } });
    }
  }

  receive([reader, observed]: ObservedNote): void {
    this.#watching.get(reader)?.observer.receive(observed);
  }

  /** A worker is back: who watched its sessions goes on, and is told what was lost. */
  resume(worker: number): void {
    const { directory } = this.#runtime;
    for (const { sessionId, observer } of this.#watching.values()) {
      if (directory.find(sessionId)?.worker === worker) void observer.resume();
    }
  }

  moved(sessionId: string, from: SessionWorker): void {
    for (const [reader, watching] of this.#watching) {
      if (watching.sessionId !== sessionId) continue;
      from.ask("unobserve", { sessionId, reader }).catch(ignore);
      void watching.observer.resume();
    }
  }

  /** A session is gone: there is nothing to watch any more. */
  ended(sessionId: string): void {
    for (const watching of [...this.#watching.values()]) if (watching.sessionId === sessionId) watching.observer.end();
  }

  close(): void {
    for (const { observer } of [...this.#watching.values()]) observer.end();
  }
}

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
interface ObserverDriver {
  /** Begins, or begins again behind a cursor, and says where; rejects when the session cannot be opened or the cursor is none of its. */
  start(from: ObserveStart): Promise<string>;
  stop(): void;
}

/**
 * One reader of a session's events. It never slows the session: what it does not read waits here, neighbouring deltas
 * joined, and when too much waits the oldest is given up and a gap announced. Leaving the loop ends the observation,
 * never a turn.
 */
export class Observer implements AsyncIterableIterator<Observed> {
  readonly #driver: ObserverDriver;
  readonly #from: ObserveStart;
  #started: Promise<void> | undefined;
  #cursor: string | undefined;
  readonly #queue: ReaderQueue<Observed>;

  constructor(
    driver: ObserverDriver,
    { from, signal }: { readonly from: ObserveStart; readonly signal?: AbortSignal | undefined },
  ) {
    this.#driver = driver;
    this.#from = from;
    let letGo = ignore;
    this.#queue = new ReaderQueue({
      unread: new ActivityBuffer(UNREAD),
      onReturn: () => {
        letGo();
        driver.stop();
      },
    });
    if (signal !== undefined) letGo = onAbort(signal, () => this.end());
  }

  /** The runtime delivers here. */
  receive(observed: Observed): void {
    if (this.#queue.ended) return;
    this.#cursor = observed.cursor;
    this.#queue.push(observed);
  }

  /** Something that is no event of the session itself. It has the place of the last one that is. */
  beside(event: Observed["event"]): void {
    if (!this.#queue.ended && this.#cursor !== undefined) this.#queue.push({ cursor: this.#cursor, event });
  }

  /** The session's worker was replaced: goes on behind what was received; what was lost is announced. */
  async resume(): Promise<void> {
    if (this.#queue.ended || this.#started === undefined) return;
    try {
      await this.#driver.start(this.#place);
    } catch (error) {
      this.fail(error as TroupeError);
    }
  }

  async #start(): Promise<void> {
    const cursor = await this.#driver.start(this.#place);
    // What has been received meanwhile is further on.
    this.#cursor ??= cursor;
  }

  get #place(): ObserveStart {
    return this.#cursor === undefined ? this.#from : { cursor: this.#cursor };
  }

  fail(error: TroupeError): void {
    this.#queue.end(error);
  }

  async next(): Promise<IteratorResult<Observed>> {
    if (!this.#queue.ended) this.#started ??= this.#start();
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
