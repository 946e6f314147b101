import type { MessagePort } from "node:worker_threads";
import { type Clock, ignore, onAbort } from "../async/index.js";
import { aborted, type TroupeError } from "../kernel/index.js";
import { CallTable, SignalCalls } from "./call-table.js";
import { Deadlines } from "./deadlines.js";
import { decodeError, encodeError, workerLost } from "./errors.js";
import {
  AT_ONCE,
  CALL,
  CANCEL,
  cannotCross,
  type EntryKind,
  FAIL,
  FULL,
  isBatch,
  isThenable,
  type LaneCallOptions,
  type LaneOptions,
  missedDeadline,
  NO_OPTIONS,
  NOTE,
  notOfALane,
  type OrphanedCall,
  type Pending,
  REPLY,
  refuseAll,
  ServedCall,
  STOP,
  unreadableMessage,
  WIDTH,
} from "./lane-calls.js";
import { closePort, listenTo, postTo, whenSettled } from "./own.js";
import { fateOf } from "./stage.js";

/**
 * The hot path between two threads. Everything said in one tick, by any number of sessions, leaves in one message,
 * and so do the answers. Either side may call; every call settles: with the answer, with the error of the other side
 * (codes intact), at its deadline, when its signal aborts, or when the other side is lost.
 *
 * A message is one flat array, {@link WIDTH} places for each entry: what it is, the call's id, the method or topic, the
 * payload. Flat because every object and array a structured clone meets costs more than the values in it.
 */
export class Lane {
  readonly #port: MessagePort;
  readonly #options: LaneOptions;
  readonly #name: string;
  readonly #methods: readonly string[];
  readonly #numbers: ReadonlyMap<string, number>;
  readonly #serve: NonNullable<LaneOptions["serve"]>;
  readonly #onNote: (topic: string, payload: unknown) => void;
  readonly #onLost: (error: TroupeError, waiting: number) => void;
  readonly #whenLost: () => TroupeError;
  readonly #stage: LaneOptions["stage"];
  readonly #foreign: boolean;
  readonly #budgetMs: number | undefined;
  /** Entries that wait for the next tick, because this one's budget was used up. */
  #inbox: unknown[] = [];
  #usedMs = 0;
  readonly #beforeSend: LaneOptions["beforeSend"];
  #adding = false;
  readonly #onAnswered: LaneOptions["onAnswered"];
  readonly #withholds: LaneOptions["withholds"];
  /** Deadlines missed since the last answer. */
  #missed = 0;
  readonly #pending = new CallTable<Pending>();
  readonly #serving = new CallTable<ServedCall>();
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #bySignal = new WeakMap<AbortSignal, SignalCalls>();
  #outbox: unknown[] = [];
  #scheduled = false;
  #nextId = 1;
  #lost: TroupeError | undefined;
  /** Messages that left and arrived; exact, for tests and `stats()`. */
  readonly counts = { sent: 0, received: 0 };

  constructor(port: MessagePort, options: LaneOptions) {
    this.#port = port;
    this.#options = options;
    this.#name = options.name;
    this.#clock = options.clock;
    this.#deadlines = new Deadlines(options.clock);
    this.#methods = options.methods ?? [];
    this.#numbers = new Map(this.#methods.map((method, number) => [method, number]));
    this.#serve = options.serve ?? refuseAll;
    this.#onNote = options.onNote ?? ignore;
    this.#onLost = options.onLost ?? ignore;
    this.#whenLost = options.whenLost ?? (() => workerLost(this.#name));
    this.#stage = options.stage;
    this.#beforeSend = options.beforeSend;
    this.#onAnswered = options.onAnswered;
    this.#withholds = options.withholds;
    this.#foreign = options.foreign === true;
    this.#budgetMs = options.budgetMs;
    listenTo(port, "message", (batch: unknown) => this.#receive(batch));
    listenTo(port, "messageerror", (error: unknown) => this.lose(unreadableMessage(this.#name, error)));
    listenTo(port, "close", options.onClosed ?? (() => this.lose(this.#whenLost())));
  }

  /** How many calls of this side wait for an answer. */
  get pending(): number {
    return this.#pending.size;
  }

  get lost(): boolean {
    return this.#lost !== undefined;
  }

  /** A call of this side that waits for its answer, by the number the other side has for it. */
  waiting(id: number): Pick<OrphanedCall, "method" | "payload"> | undefined {
    return this.#pending.get(id);
  }

  *waitingPayloads(): Iterable<unknown> {
    for (const { payload } of this.#pending.values()) yield payload;
  }

  call<T>(method: string, payload: unknown, options: LaneCallOptions = NO_OPTIONS): Promise<T> {
    if (this.#lost !== undefined) return Promise.reject(this.#lost);
    const { signal, deadlineMs } = options;
    if (signal?.aborted) return Promise.reject(aborted(signal));
    const id = this.#nextId++;
    // Typed by what the other side serves under this method.
    return new Promise<unknown>((resolve, reject) => {
      const own: Pending = { id, method, payload, options, resolve, reject, deadline: undefined, listening: undefined };
      this.#pending.add(own);
      if (deadlineMs !== undefined) own.deadline = this.#deadlines.add(deadlineMs, this.#expire, own);
      if (signal !== undefined) {
        own.listening = this.#listeningTo(signal);
        own.listening.add(id);
      }
      this.#post(CALL, id, this.#numbers.get(method) ?? method, payload);
    }) as Promise<T>;
  }

  /** Says something that needs no answer. Order with calls of the same tick is kept. */
  note(topic: string, payload: unknown): void {
    if (this.#lost === undefined) this.#post(NOTE, 0, topic, payload);
  }

  /** Declares the other side dead: every pending call rejects with `error`, every served call is told to stop. */
  lose(error: TroupeError): void {
    if (this.#lost !== undefined) return;
    this.#lost = error;
    this.#outbox = [];
    this.#deadlines.clear();
    const { orphans } = this.#options;
    const pending = this.#pending.values();
    this.#pending.clear();
    for (const call of pending) {
      const { id, method, payload, options, resolve, reject, deadline } = call;
      call.listening?.ended();
      const orphan = { method, payload, options, resolve, reject, expiresAt: deadline?.at };
      if (orphans === undefined) reject(error);
      else orphans.take(orphan, fateOf(orphans.stage, id));
    }
    for (const served of this.#serving.values()) served.cancel();
    this.#serving.clear();
    closePort(this.#port);
    this.#onLost(error, pending.length);
  }

  /** Sends what is queued at once. */
  flush(): void {
    this.#send();
  }

  /** Sends what is queued, then closes the port. Pending calls reject with `worker_lost`. */
  close(): void {
    this.#flush();
    this.lose(this.#whenLost());
  }

  #post(kind: EntryKind, id: number, name: string | number, payload: unknown): void {
    const outbox = this.#outbox;
    const at = outbox.length;
    if (at === 0) {
      // Not by adding to an empty list, which V8 makes anew for each kind of value that is added.
      this.#outbox = [kind, id, name, payload];
    } else {
      // By place: a plugin may have replaced `push` on its thread.
      outbox[at] = kind;
      outbox[at + 1] = id;
      outbox[at + 2] = name;
      outbox[at + 3] = payload;
      if (at + WIDTH >= FULL && !this.#adding) {
        this.#send();
        return;
      }
    }
    if (this.#scheduled) return;
    this.#scheduled = true;
    // nextTick runs when the microtask queue is empty: every continuation of this tick has added its entry by then.
    this.#clock.nextTick(this.#flush);
  }

  readonly #flush = (): void => {
    this.#scheduled = false;
    this.#send();
  };

  #send(): void {
    if (this.#outbox.length === 0) return;
    if (this.#beforeSend !== undefined) {
      this.#adding = true;
      this.#beforeSend();
      this.#adding = false;
    }
    const batch = this.#outbox;
    this.#outbox = [];
    try {
      postTo(this.#port, batch);
      this.counts.sent++;
    } catch {
      this.#sendOneByOne(batch);
    }
  }

  /** One entry could not be cloned: find it, fail it alone, send the others. */
  #sendOneByOne(batch: readonly unknown[]): void {
    for (let at = 0; at < batch.length; at += WIDTH) {
      const kind = batch[at] as EntryKind;
      const id = batch[at + 1] as number;
      try {
        postTo(this.#port, batch.slice(at, at + WIDTH));
        this.counts.sent++;
      } catch (cause) {
        const error = cannotCross(this.#name, cause);
        if (kind === CALL) this.#settle(id, undefined, error);
        else if (kind === REPLY) {
          postTo(this.#port, [FAIL, id, 0, encodeError(error)]);
          this.counts.sent++;
        }
      }
    }
  }

  #receive(batch: unknown): void {
    this.counts.received++;
    if (!this.#foreign) {
      this.#take(batch as unknown[]);
      return;
    }
    try {
      if (!isBatch(batch)) throw new TypeError("It is not a list of entries.");
      this.#take(batch);
    } catch (cause) {
      this.lose(notOfALane(this.#name, cause));
    }
  }

  /**
   * Reads entries until the budget is used up; the rest waits behind the timers and ports that are ready. Time is counted
   * over ticks, so that a lane with little to do needs no timer to begin anew.
   */
  #take(batch: unknown[]): void {
    if (this.#inbox.length > 0) {
      this.#inbox.push(...batch);
      return;
    }
    if (this.#budgetMs === undefined) this.#read(batch, 0, batch.length);
    else this.#takeWithin(batch, this.#budgetMs);
    this.#stage?.rested();
  }

  #takeWithin(batch: unknown[], budgetMs: number): void {
    let last = this.#clock.now();
    for (let at = 0; at < batch.length; at += AT_ONCE) {
      if (this.#usedMs > budgetMs) {
        this.#inbox = at === 0 ? batch : batch.slice(at);
        this.#clock.soon(this.#readInbox);
        return;
      }
      this.#read(batch, at, Math.min(batch.length, at + AT_ONCE));
      const now = this.#clock.now();
      this.#usedMs += now - last;
      last = now;
    }
  }

  readonly #readInbox = (): void => {
    const waiting = this.#inbox;
    this.#inbox = [];
    this.#usedMs = 0;
    this.#take(waiting);
  };

  #read(batch: readonly unknown[], from: number, end: number): void {
    // What came before may have closed the lane: nobody waits for the rest.
    for (let at = from; at < end && this.#lost === undefined; at += WIDTH) {
      const id = batch[at + 1] as number;
      const payload = batch[at + 3];
      switch (batch[at] as EntryKind) {
        case CALL:
          this.#answer(id, this.#methodOf(batch[at + 2]), payload);
          break;
        case REPLY:
          this.#missed = 0;
          this.#settle(id, payload, undefined);
          break;
        case FAIL:
          this.#missed = 0;
          this.#settle(id, undefined, decodeError(payload));
          break;
        case CANCEL: {
          const served = this.#serving.get(id);
          this.#serving.delete(id);
          served?.cancel();
          break;
        }
        case STOP:
          this.#serving.get(id)?.cancel();
          break;
        case NOTE:
          this.#onNote(batch[at + 2] as string, payload);
          break;
        default:
          if (this.#foreign) throw new TypeError("It has an entry of no known kind.");
      }
    }
  }

  #methodOf(name: unknown): string {
    return typeof name === "number" ? (this.#methods[name] as string) : (name as string);
  }

  #answer(id: number, method: string, payload: unknown): void {
    const served = new ServedCall(id);
    this.#stage?.enter(id, method);
    try {
      const result = this.#serve(method, payload, served);
      if (!isThenable(result)) {
        this.#reply(REPLY, served, result);
        return;
      }
      this.#serving.add(served);
      // A cancelled call was already settled by its caller: its late answer is dropped.
      whenSettled(
        result,
        (value) => {
          if (this.#serving.delete(id)) this.#reply(REPLY, served, value);
        },
        (error) => {
          if (this.#serving.delete(id)) this.#reply(FAIL, served, encodeError(error));
        },
      );
    } catch (error) {
      this.#serving.delete(id);
      this.#reply(FAIL, served, encodeError(error));
    } finally {
      this.#stage?.leave();
    }
  }

  #reply(kind: typeof REPLY | typeof FAIL, served: ServedCall, payload: unknown): void {
    if (this.#lost !== undefined || this.#withholds?.(kind === FAIL)) return;
    if (served.subject !== undefined) this.#onAnswered?.(served.subject);
    const refusal = payload === undefined ? undefined : this.#options.refusalOf?.(payload);
    if (refusal === undefined) this.#post(kind, served.id, 0, payload);
    else this.#post(FAIL, served.id, 0, encodeError(refusal));
  }

  #settle(id: number, value: unknown, error: Error | undefined): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    if (pending.deadline !== undefined) this.#deadlines.cancel(pending.deadline);
    pending.listening?.ended();
    if (error === undefined) pending.resolve(value);
    else pending.reject(error);
  }

  readonly #expire = ({ id, method, options }: Pending): void => {
    this.#abandon(id, missedDeadline(this.#name, method, options));
    this.#options.onMissed?.(++this.#missed);
  };

  /** The pending calls of one signal. One listener serves them all: adding one per call costs as much as the call. */
  #listeningTo(signal: AbortSignal): SignalCalls {
    const known = this.#bySignal.get(signal);
    if (known !== undefined) return known;
    const calls = new SignalCalls(this.#pending);
    this.#bySignal.set(signal, calls);
    onAbort(signal, () => {
      for (const id of calls.waiting()) {
        const { cooperative, graceMs = 0 } = this.#pending.get(id)?.options ?? NO_OPTIONS;
        if (cooperative === true) this.#post(STOP, id, 0, 0);
        else if (graceMs > 0) this.#askToStop(id, graceMs, signal);
        else this.#abandon(id, aborted(signal));
      }
    });
    return calls;
  }

  /** The other side may still answer within the grace. */
  #askToStop(id: number, graceMs: number, signal: AbortSignal): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#post(STOP, id, 0, 0);
    if (pending.deadline !== undefined) this.#deadlines.cancel(pending.deadline);
    pending.deadline = this.#deadlines.add(graceMs, () => this.#abandon(id, aborted(signal)));
  }

  #abandon(id: number, error: TroupeError): void {
    if (this.#pending.get(id) === undefined) return;
    this.#settle(id, undefined, error);
    if (this.#lost === undefined) this.#post(CANCEL, id, 0, 0);
  }
}
