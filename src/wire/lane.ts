import type { MessagePort } from "node:worker_threads";
import { type Clock, ignore, onAbort } from "../async/index.js";
import { aborted, messageOf, TroupeError } from "../kernel/index.js";
import { type Deadline, Deadlines } from "./deadlines.js";
import { decodeError, type ErrorData, encodeError, workerLost } from "./errors.js";

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
  readonly #name: string;
  readonly #methods: readonly string[];
  readonly #numbers: ReadonlyMap<string, number>;
  readonly #serve: LaneServer;
  readonly #onNote: (topic: string, payload: unknown) => void;
  readonly #onLost: (error: TroupeError) => void;
  readonly #whenLost: () => TroupeError;
  readonly #onUnstarted: ((call: UnstartedCall) => void) | undefined;
  readonly #stage: Int32Array | undefined;
  readonly #pending = new Map<number, Pending>();
  readonly #serving = new Map<number, ServedCall>();
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #bySignal = new WeakMap<AbortSignal, Set<number>>();
  #outbox: unknown[] = [];
  #scheduled = false;
  #nextId = 1;
  #lost: TroupeError | undefined;
  /** Messages that left and arrived; exact, for tests and `stats()`. */
  readonly counts = { sent: 0, received: 0 };

  constructor(port: MessagePort, options: LaneOptions) {
    this.#port = port;
    this.#name = options.name;
    this.#clock = options.clock;
    this.#deadlines = new Deadlines(options.clock);
    this.#methods = options.methods ?? [];
    this.#numbers = new Map(this.#methods.map((method, number) => [method, number]));
    this.#serve = options.serve ?? refuseAll;
    this.#onNote = options.onNote ?? ignore;
    this.#onLost = options.onLost ?? ignore;
    this.#whenLost = options.whenLost ?? (() => workerLost(this.#name));
    this.#onUnstarted = options.onUnstarted;
    this.#stage = options.stage;
    port.on("message", (batch: unknown[]) => this.#receive(batch));
    port.on("messageerror", (error) =>
      this.lose(new TroupeError("wire_corrupt", `A message on ${this.#name} could not be read.`, { cause: error })),
    );
    port.on("close", () => this.lose(this.#whenLost()));
  }

  /** How many calls of this side wait for an answer. */
  get pending(): number {
    return this.#pending.size;
  }

  get lost(): boolean {
    return this.#lost !== undefined;
  }

  /** A call of this side that waits for its answer, by the number the other side has for it. */
  waiting(id: number): Pick<UnstartedCall, "method" | "payload"> | undefined {
    return this.#pending.get(id);
  }

  call<T>(method: string, payload: unknown, options: LaneCallOptions = NO_OPTIONS): Promise<T> {
    if (this.#lost !== undefined) return Promise.reject(this.#lost);
    const { signal, deadlineMs } = options;
    if (signal?.aborted) return Promise.reject(aborted(signal));
    const id = this.#nextId++;
    // Typed by what the other side serves under this method.
    return new Promise<unknown>((resolve, reject) => {
      const pending: Pending = {
        id,
        method,
        payload,
        options,
        resolve,
        reject,
        deadline: undefined,
        listening: undefined,
      };
      this.#pending.set(id, pending);
      if (deadlineMs !== undefined) pending.deadline = this.#deadlines.add(deadlineMs, this.#expire, pending);
      if (signal !== undefined) {
        pending.listening = this.#listeningTo(signal);
        pending.listening.add(id);
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
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const call of pending) {
      if (this.#onUnstarted !== undefined && this.#neverStarted(call.id)) this.#onUnstarted(call);
      else call.reject(error);
    }
    for (const served of this.#serving.values()) served.cancel();
    this.#serving.clear();
    this.#port.close();
    this.#onLost(error);
  }

  /** The other side starts calls in order and says in the shared cell how far it has come. */
  #neverStarted(id: number): boolean {
    // The cell holds 32 bits and a busy lane makes more calls than that: compared as a distance.
    return this.#stage !== undefined && ((id - Atomics.load(this.#stage, 0)) | 0) > 0;
  }

  /** Sends what is queued, then closes the port. Pending calls reject with `worker_lost`. */
  close(): void {
    if (this.#lost !== undefined) return;
    this.#flush();
    this.lose(this.#whenLost());
  }

  #post(kind: EntryKind, id: number, name: string | number, payload: unknown): void {
    this.#outbox.push(kind, id, name, payload);
    if (this.#outbox.length >= FULL) {
      this.#send();
      return;
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
    const batch = this.#outbox;
    if (batch.length === 0) return;
    this.#outbox = [];
    try {
      this.#port.postMessage(batch);
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
        this.#port.postMessage(batch.slice(at, at + WIDTH));
        this.counts.sent++;
      } catch (cause) {
        const message = `${this.#name}: what was sent cannot cross a thread: ${messageOf(cause)}`;
        const error = new TroupeError("unserialisable", message, { cause });
        if (kind === CALL) this.#settle(id, undefined, error);
        else if (kind === REPLY) {
          this.#port.postMessage([FAIL, id, 0, encodeError(error)]);
          this.counts.sent++;
        }
      }
    }
  }

  #receive(batch: readonly unknown[]): void {
    this.counts.received++;
    // What came before may have closed the lane: nobody waits for the rest.
    for (let at = 0; at < batch.length && this.#lost === undefined; at += WIDTH) {
      const id = batch[at + 1] as number;
      const payload = batch[at + 3];
      switch (batch[at] as EntryKind) {
        case CALL:
          this.#answer(id, this.#methodOf(batch[at + 2]), payload);
          break;
        case REPLY:
          this.#settle(id, payload, undefined);
          break;
        case FAIL:
          this.#settle(id, undefined, decodeError(payload as ErrorData));
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
      }
    }
  }

  #methodOf(name: unknown): string {
    return typeof name === "number" ? (this.#methods[name] as string) : (name as string);
  }

  #answer(id: number, method: string, payload: unknown): void {
    if (this.#stage !== undefined && this.#onUnstarted === undefined) Atomics.store(this.#stage, 0, id);
    const served = new ServedCall(id);
    try {
      const result = this.#serve(method, payload, served);
      if (!isThenable(result)) {
        this.#reply(REPLY, id, result);
        return;
      }
      this.#serving.set(id, served);
      // A cancelled call was already settled by its caller: its late answer is dropped.
      result.then(
        (value) => {
          if (this.#serving.delete(id)) this.#reply(REPLY, id, value);
        },
        (error) => {
          if (this.#serving.delete(id)) this.#reply(FAIL, id, encodeError(error));
        },
      );
    } catch (error) {
      this.#serving.delete(id);
      this.#reply(FAIL, id, encodeError(error));
    }
  }

  #reply(kind: typeof REPLY | typeof FAIL, id: number, payload: unknown): void {
    if (this.#lost === undefined) this.#post(kind, id, 0, payload);
  }

  #settle(id: number, value: unknown, error: Error | undefined): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    this.#pending.delete(id);
    if (pending.deadline !== undefined) this.#deadlines.cancel(pending.deadline);
    pending.listening?.delete(id);
    if (error === undefined) pending.resolve(value);
    else pending.reject(error);
  }

  readonly #expire = ({ id, method, options }: Pending): void => {
    const { deadlineMs, deadlineCode = "call_timeout", onExpired } = options;
    const message = `${this.#name}: ${method} did not answer within ${deadlineMs} ms.`;
    const error =
      onExpired?.() ?? new TroupeError(deadlineCode, message, { retryable: true, details: { method, deadlineMs } });
    this.#abandon(id, error);
  };

  /** The pending calls of one signal. One listener serves them all: adding one per call costs as much as the call. */
  #listeningTo(signal: AbortSignal): Set<number> {
    const known = this.#bySignal.get(signal);
    if (known !== undefined) return known;
    const ids = new Set<number>();
    this.#bySignal.set(signal, ids);
    onAbort(signal, () => {
      for (const id of [...ids]) {
        const { cooperative, graceMs = 0 } = this.#pending.get(id)?.options ?? NO_OPTIONS;
        if (cooperative === true) this.#post(STOP, id, 0, 0);
        else if (graceMs > 0) this.#askToStop(id, graceMs, signal);
        else this.#abandon(id, aborted(signal));
      }
    });
    return ids;
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
    if (!this.#pending.has(id)) return;
    this.#settle(id, undefined, error);
    if (this.#lost === undefined) this.#post(CANCEL, id, 0, 0);
  }
}

export interface LaneOptions {
  /** Names the lane in errors: "plugin acme.budget", "session worker 1". */
  readonly name: string;
  readonly clock: Clock;
  /** Methods both sides know in this order; they cross as numbers, which cost less than names. */
  readonly methods?: readonly string[];
  readonly serve?: LaneServer;
  readonly onNote?: (topic: string, payload: unknown) => void;
  readonly onLost?: (error: TroupeError) => void;
  /** The error of calls that the other side did not answer before its end; default `worker_lost`. */
  readonly whenLost?: () => TroupeError;
  /** A shared cell in which the serving side keeps the id of the last call it started. */
  readonly stage?: Int32Array;
  /** With `stage`, on the calling side: takes over a call that the lost side had not started, instead of rejecting it. */
  readonly onUnstarted?: (call: UnstartedCall) => void;
}

/** A call that can still be made elsewhere: whoever has it settles it. */
export interface UnstartedCall {
  readonly method: string;
  readonly payload: unknown;
  readonly options: LaneCallOptions;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

export interface LaneCallOptions {
  readonly deadlineMs?: number;
  /** The code of the error a missed deadline gives; default `call_timeout`. */
  readonly deadlineCode?: string;
  /** Told that the deadline was missed; its error is the call's, instead of one with `deadlineCode`. */
  readonly onExpired?: () => TroupeError;
  readonly signal?: AbortSignal | undefined;
  /** An abort is a request: the other side's signal aborts, and its answer still counts. */
  readonly cooperative?: boolean;
  /** The same for so long: after an abort and this time the call rejects. Default 0. */
  readonly graceMs?: number;
}

/** Answers one call; may return a promise. `call.signal` aborts when the caller gave up. */
type LaneServer = (method: string, payload: unknown, call: ServedCall) => unknown;

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

const CALL = 0;
const REPLY = 1;
const FAIL = 2;
const CANCEL = 3;
const NOTE = 4;
const STOP = 5;

type EntryKind = typeof CALL | typeof REPLY | typeof FAIL | typeof CANCEL | typeof NOTE | typeof STOP;
const WIDTH = 4;
/** A full outbox leaves at once, so that the other thread begins while this one is still calling. */
const FULL = WIDTH * 24;

/** Plain fields and no closures: one of these is made for every call. */
interface Pending extends UnstartedCall {
  readonly id: number;
  deadline: Deadline | undefined;
  /** The calls of this call's signal, itself among them. */
  listening: Set<number> | undefined;
}

const NO_OPTIONS: LaneCallOptions = {};

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

function refuseAll(method: string): never {
  throw new TroupeError("unknown_method", `This side of the lane serves no calls (${method}).`);
}
