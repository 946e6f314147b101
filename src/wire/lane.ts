import type { MessagePort } from "node:worker_threads";
import { aborted, messageOf, TroupeError } from "../kernel/index.js";
import { type Deadline, Deadlines } from "./deadlines.js";
import { decodeError, type ErrorData, encodeError } from "./errors.js";

/**
 * The hot path between two threads. Everything said in one tick, by any number of sessions, leaves in one message,
 * and so do the answers. Either side may call; every call settles: with the answer, with the error of the other side
 * (codes intact), at its deadline, when its signal aborts, or when the other side is lost.
 *
 * An entry is data only. Measured against msgpack in a transferred buffer, the structured clone of a whole batch costs
 * half as much per call (docs/decisions.md), so the batch is posted as it is.
 */
export class Lane {
  readonly #port: MessagePort;
  readonly #name: string;
  readonly #serve: LaneServer;
  readonly #onNote: (topic: string, payload: unknown) => void;
  readonly #onLost: (error: TroupeError) => void;
  readonly #pending = new Map<number, Pending>();
  readonly #serving = new Map<number, ServedCall>();
  readonly #deadlines = new Deadlines();
  readonly #bySignal = new WeakMap<AbortSignal, Set<number>>();
  #outbox: Entry[] = [];
  #scheduled = false;
  #nextId = 1;
  #lost: TroupeError | undefined;
  /** Messages that left and arrived; exact, for tests and `stats()`. */
  readonly counts = { sent: 0, received: 0 };

  constructor(port: MessagePort, options: LaneOptions) {
    this.#port = port;
    this.#name = options.name;
    this.#serve = options.serve ?? refuseAll;
    this.#onNote = options.onNote ?? ignore;
    this.#onLost = options.onLost ?? ignore;
    port.on("message", (batch: Entry[]) => this.#receive(batch));
    port.on("messageerror", (error) =>
      this.lose(new TroupeError("wire_corrupt", `A message on ${this.#name} could not be read.`, { cause: error })),
    );
    port.on("close", () => this.lose(workerLost(this.#name)));
  }

  /** How many calls of this side wait for an answer. */
  get pending(): number {
    return this.#pending.size;
  }

  get lost(): boolean {
    return this.#lost !== undefined;
  }

  call<T>(method: string, payload: unknown, options: LaneCallOptions = NO_OPTIONS): Promise<T> {
    if (this.#lost !== undefined) return Promise.reject(this.#lost);
    const { signal, deadlineMs } = options;
    if (signal?.aborted) return Promise.reject(aborted(signal));
    const id = this.#nextId++;
    return new Promise<T>((resolve, reject) => {
      const pending = new Pending(resolve as (value: unknown) => void, reject);
      this.#pending.set(id, pending);
      if (deadlineMs !== undefined)
        pending.deadline = this.#deadlines.add(deadlineMs, () => this.#expire(id, method, options));
      if (signal !== undefined) {
        pending.listening = this.#listeningTo(signal);
        pending.listening.add(id);
      }
      this.#post([CALL, id, method, payload]);
    });
  }

  /** Says something that needs no answer. Order with calls of the same tick is kept. */
  note(topic: string, payload: unknown): void {
    if (this.#lost === undefined) this.#post([NOTE, 0, topic, payload]);
  }

  /** Declares the other side dead: every pending call rejects with `error`, every served call is told to stop. */
  lose(error: TroupeError): void {
    if (this.#lost !== undefined) return;
    this.#lost = error;
    this.#outbox = [];
    this.#deadlines.clear();
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const call of pending) call.reject(error);
    for (const served of this.#serving.values()) served.cancel();
    this.#serving.clear();
    this.#port.close();
    this.#onLost(error);
  }

  /** Sends what is queued, then closes the port. Pending calls reject with `worker_lost`. */
  close(): void {
    if (this.#lost !== undefined) return;
    this.#flush();
    this.lose(workerLost(this.#name));
  }

  #post(entry: Entry): void {
    this.#outbox.push(entry);
    if (this.#scheduled) return;
    this.#scheduled = true;
    // nextTick runs when the microtask queue is empty: every continuation of this tick has added its entry by then.
    process.nextTick(this.#flush);
  }

  readonly #flush = (): void => {
    this.#scheduled = false;
    const batch = this.#outbox;
    if (batch.length === 0) return;
    this.#outbox = [];
    try {
      this.#port.postMessage(batch);
      this.counts.sent++;
    } catch {
      this.#sendOneByOne(batch);
    }
  };

  /** One entry could not be cloned: find it, fail it alone, send the others. */
  #sendOneByOne(batch: readonly Entry[]): void {
    for (const entry of batch) {
      try {
        this.#port.postMessage([entry]);
        this.counts.sent++;
      } catch (cause) {
        const error = new TroupeError(
          "unserialisable",
          `${this.#name}: what was sent cannot cross a thread: ${messageOf(cause)}`,
          { cause },
        );
        if (entry[0] === CALL) this.#settle(entry[1], undefined, error);
        else if (entry[0] === REPLY) {
          this.#port.postMessage([[FAIL, entry[1], "", encodeError(error)]]);
          this.counts.sent++;
        }
      }
    }
  }

  #receive(batch: readonly Entry[]): void {
    this.counts.received++;
    for (const entry of batch) {
      // What came before may have closed the lane: nobody waits for the rest.
      if (this.#lost !== undefined) return;
      switch (entry[0]) {
        case CALL:
          this.#answer(entry[1], entry[2], entry[3]);
          break;
        case REPLY:
          this.#settle(entry[1], entry[3], undefined);
          break;
        case FAIL:
          this.#settle(entry[1], undefined, decodeError(entry[3] as ErrorData));
          break;
        case CANCEL: {
          const served = this.#serving.get(entry[1]);
          this.#serving.delete(entry[1]);
          served?.cancel();
          break;
        }
        case NOTE:
          this.#onNote(entry[2], entry[3]);
          break;
      }
    }
  }

  #answer(id: number, method: string, payload: unknown): void {
    const served = new ServedCall();
    try {
      const result = this.#serve(method, payload, served);
      if (!isThenable(result)) {
        this.#reply([REPLY, id, "", result]);
        return;
      }
      this.#serving.set(id, served);
      // A cancelled call was already settled by its caller: its late answer is dropped.
      result.then(
        (value) => {
          if (this.#serving.delete(id)) this.#reply([REPLY, id, "", value]);
        },
        (error) => {
          if (this.#serving.delete(id)) this.#reply([FAIL, id, "", encodeError(error)]);
        },
      );
    } catch (error) {
      this.#serving.delete(id);
      this.#reply([FAIL, id, "", encodeError(error)]);
    }
  }

  #reply(entry: Entry): void {
    if (this.#lost === undefined) this.#post(entry);
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

  #expire(
    id: number,
    method: string,
    { deadlineMs, deadlineCode = "call_timeout", onDeadline }: LaneCallOptions,
  ): void {
    const message = `${this.#name}: ${method} did not answer within ${deadlineMs} ms.`;
    this.#abandon(id, new TroupeError(deadlineCode, message, { retryable: true, details: { method, deadlineMs } }));
    onDeadline?.();
  }

  /** The pending calls of one signal. One listener serves them all: adding one per call costs as much as the call. */
  #listeningTo(signal: AbortSignal): Set<number> {
    let ids = this.#bySignal.get(signal);
    if (ids === undefined) {
      const calls = new Set<number>();
      ids = calls;
      this.#bySignal.set(signal, calls);
      const onAbort = () => {
        for (const id of [...calls]) this.#abandon(id, aborted(signal));
      };
      signal.addEventListener("abort", onAbort, { once: true });
    }
    return ids;
  }

  #abandon(id: number, error: TroupeError): void {
    if (!this.#pending.has(id)) return;
    this.#settle(id, undefined, error);
    if (this.#lost === undefined) this.#post([CANCEL, id, "", undefined]);
  }
}

export interface LaneOptions {
  /** Names the lane in errors: "plugin acme.budget", "session worker 1". */
  readonly name: string;
  readonly serve?: LaneServer;
  readonly onNote?: (topic: string, payload: unknown) => void;
  readonly onLost?: (error: TroupeError) => void;
}

export interface LaneCallOptions {
  readonly deadlineMs?: number;
  /** The code of the error a missed deadline gives; default `call_timeout`. */
  readonly deadlineCode?: string;
  /** Called when the deadline passes, after the call was rejected. */
  readonly onDeadline?: () => void;
  readonly signal?: AbortSignal | undefined;
}

/** Answers one call; may return a promise. `call.signal` aborts when the caller gave up. */
export type LaneServer = (method: string, payload: unknown, call: ServedCall) => unknown;

/** The served side of a call. The signal is made on first use, because most hooks never look at it. */
export class ServedCall {
  #controller: AbortController | undefined;
  #cancelled = false;

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

export function workerLost(name: string, cause?: unknown): TroupeError {
  return new TroupeError("worker_lost", `${name} is gone; the call was not answered.`, { retryable: true, cause });
}

const CALL = 0;
const REPLY = 1;
const FAIL = 2;
const CANCEL = 3;
const NOTE = 4;

/** kind, call id, method or topic, payload. */
type Entry = readonly [kind: 0 | 1 | 2 | 3 | 4, id: number, name: string, payload: unknown];

class Pending {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  deadline: Deadline | undefined = undefined;
  /** The calls of this call's signal, itself among them. */
  listening: Set<number> | undefined = undefined;

  constructor(resolve: (value: unknown) => void, reject: (error: Error) => void) {
    this.resolve = resolve;
    this.reject = reject;
  }
}

const NO_OPTIONS: LaneCallOptions = {};

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

function refuseAll(method: string): never {
  throw new TroupeError("unknown_method", `This side of the lane serves no calls (${method}).`);
}

function ignore(): void {}
