import * as Comlink from "comlink";
import nodeEndpoint from "comlink/dist/esm/node-adapter.mjs";
import { type Clock, ignore, onAbort } from "../async/index.js";
import { aborted, TroupeError, unknownMethod, unserialisable } from "../kernel/index.js";
import { Deadlines } from "./deadlines.js";
import { decodeError, type ErrorData, encodeError, workerLost } from "./errors.js";

/**
 * Comlink for everything that is not hot, with its edges rounded off once: a call in flight settles when its worker
 * dies, has a deadline, carries cancellation as a message, and keeps its proxy alive until it settles.
 */

/** A table of functions served to another thread. Each gets one argument of plain data and a signal. */
// biome-ignore lint/suspicious/noExplicitAny: the argument's type is each service's own
export type Service = { readonly [method: string]: (argument: any, signal: AbortSignal) => unknown };

/** A service as its own thread writes it: every function also gets the signal of its call. */
export type Served<S extends Service> = {
  readonly [M in keyof S]: (argument: Parameters<S[M]>[0], signal: AbortSignal) => ReturnType<S[M]>;
};

/** What Comlink can talk through: a Worker, or a worker's parentPort. */
interface Endpoint {
  postMessage(message: unknown, transfer?: readonly unknown[]): void;
  // biome-ignore lint/suspicious/noExplicitAny: Node's emitters type their listeners this way
  on(type: string, listener: (...args: any[]) => void): unknown;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  off(type: string, listener: (...args: any[]) => void): unknown;
  start?(): void;
}

/** What really crosses by Comlink. Errors travel as data because Comlink keeps only name, message and stack. */
interface Exposed {
  call(id: number, method: string, argument: unknown): Promise<Answer>;
  cancel(id: number): void;
}
type Answer = { readonly ok: true; readonly value: unknown } | { readonly ok: false; readonly error: ErrorData };

/** Serves `service` on a port (a worker's `parentPort`). */
export function serve(port: Endpoint, service: Service): void {
  const running = new Map<number, AbortController>();
  const exposed: Exposed = {
    async call(id, method, argument) {
      const controller = new AbortController();
      running.set(id, controller);
      try {
        const served = Object.hasOwn(service, method) ? service[method] : undefined;
        if (served === undefined) throw unknownMethod("This thread", method);
        const value = await served(argument, controller.signal);
        return withTransfers(value);
      } catch (error) {
        return { ok: false, error: encodeError(error) };
      } finally {
        running.delete(id);
      }
    },
    cancel(id) {
      running.get(id)?.abort();
    },
  };
  Comlink.expose(exposed, nodeEndpoint(onlyCalls(port)));
  port.on("close", () => {
    for (const controller of running.values()) controller.abort();
  });
}

/**
 * Comlink lets whoever is on the other side walk from a function to its constructor, and set what it finds on the way.
 * The other side may be a plugin: what is not a call of one of the two functions never reaches Comlink.
 */
function onlyCalls(port: Endpoint): Endpoint {
  return {
    postMessage: (message, transfer) => port.postMessage(message, transfer),
    on: (type, listener) =>
      port.on(type, (message: unknown) => {
        if (isCall(message)) listener(message);
      }),
    // Comlink takes its listener off for a release only, which is not let through.
    off: (type, listener) => port.off(type, listener),
    start: () => port.start?.(),
  };
}

function isCall(message: unknown): boolean {
  const { id, type, path, argumentList } = (message ?? {}) as Partial<Record<string, unknown>>;
  if (type !== "APPLY" || typeof id !== "string" || !Array.isArray(path) || path.length !== 1) return false;
  if (!Array.isArray(argumentList) || argumentList.length > 3 || !argumentList.every(isRaw)) return false;
  const [call, method] = argumentList.map(({ value }) => value as unknown);
  if (typeof call !== "number") return false;
  return path[0] === "cancel" || (path[0] === "call" && typeof method === "string");
}

/** Comlink would revive anything else: a proxy, or what was thrown. */
function isRaw(argument: unknown): argument is { readonly value: unknown } {
  return (argument as { type?: unknown } | null)?.type === "RAW";
}

/** Marks buffers inside a service's result to be moved instead of copied. */
export function moving<T extends object>(value: T, buffers: readonly ArrayBuffer[]): T {
  moves.set(value, buffers);
  return value;
}
const moves = new WeakMap<object, readonly ArrayBuffer[]>();

function withTransfers(value: unknown): Answer {
  const answer: Answer = { ok: true, value };
  const buffers = typeof value === "object" && value !== null ? moves.get(value) : undefined;
  return buffers === undefined ? answer : Comlink.transfer(answer, [...buffers]);
}

export interface CallOptions {
  readonly deadlineMs?: number;
  readonly signal?: AbortSignal | undefined;
  /** An abort is a request: the other side's signal aborts, and its answer still counts. */
  readonly cooperative?: boolean;
  readonly transfer?: readonly Transferable[];
}
type Transferable = ArrayBuffer | import("node:worker_threads").MessagePort;

type Remote<S extends Service> = {
  readonly [M in keyof S]: (argument: Parameters<S[M]>[0], options?: CallOptions) => Promise<Awaited<ReturnType<S[M]>>>;
};

/** The calling side of a {@link Service}: every call settles, also when the other side dies. */
export class Caller<S extends Service> {
  readonly #remote: Comlink.Remote<Exposed>;
  readonly #name: string;
  readonly #defaultDeadlineMs: number;
  readonly #pending = new Map<number, (error: TroupeError) => void>();
  readonly #deadlines: Deadlines;
  #nextId = 1;
  #lost: TroupeError | undefined;

  constructor(
    endpoint: Endpoint,
    options: { readonly name: string; readonly deadlineMs: number; readonly clock: Clock },
  ) {
    this.#remote = Comlink.wrap<Exposed>(nodeEndpoint(endpoint));
    this.#name = options.name;
    this.#defaultDeadlineMs = options.deadlineMs;
    this.#deadlines = new Deadlines(options.clock);
  }

  /** `caller.to.open({ id })` calls `open` on the other thread. */
  readonly to: Remote<S> = new Proxy({} as Remote<S>, {
    get: (_, method) => {
      // `then` would make every `await` of this object a remote call.
      if (typeof method !== "string" || method === "then") return undefined;
      return (argument: unknown, options?: CallOptions) => this.call(method, argument, options);
    },
  });

  get pending(): number {
    return this.#pending.size;
  }

  /** The other side is dead: rejects every pending call with `worker_lost`, and every later one. */
  lose(cause?: unknown): void {
    if (this.#lost !== undefined) return;
    this.#lost = workerLost(this.#name, undefined, { cause });
    this.#deadlines.clear();
    for (const reject of [...this.#pending.values()]) reject(this.#lost);
    this.#pending.clear();
  }

  /** The same by name. */
  call<T>(method: string, argument: unknown, options: CallOptions = {}): Promise<T> {
    if (this.#lost !== undefined) return Promise.reject(this.#lost);
    const { signal } = options;
    if (signal?.aborted) return Promise.reject(aborted(signal));
    const id = this.#nextId++;
    const deadlineMs = options.deadlineMs ?? this.#defaultDeadlineMs;
    return new Promise<T>((resolve, reject) => {
      const sent =
        options.transfer === undefined ? argument : Comlink.transfer(argument as object, [...options.transfer]);
      const settle = (end: () => void) => {
        if (!this.#pending.delete(id)) return;
        this.#deadlines.cancel(deadline);
        letGo();
        end();
      };
      const askToStop = () => void this.#remote.cancel(id).catch(ignore);
      const giveUp = (error: TroupeError) =>
        settle(() => {
          reject(error);
          askToStop();
        });
      const deadline = this.#deadlines.add(deadlineMs, () =>
        giveUp(
          new TroupeError("call_timeout", `${this.#name}: ${method} did not answer within ${deadlineMs} ms.`, {
            retryable: true,
            details: { method, deadlineMs },
          }),
        ),
      );
      const letGo = onAbort(
        signal,
        options.cooperative === true ? askToStop : () => giveUp(aborted(signal as AbortSignal)),
      );
      this.#pending.set(id, (error) => settle(() => reject(error)));
      this.#remote.call(id, method, sent).then(
        (answer) =>
          settle(() => {
            if (answer.ok) resolve(answer.value as T);
            else reject(decodeError(answer.error));
          }),
        (error: unknown) =>
          settle(() => reject(unserialisable(this.#name, `${method} could not cross the thread`, error))),
      );
    });
  }
}
