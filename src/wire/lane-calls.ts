import type { Clock } from "../async/index.js";
import {
  messageOf,
  TroupeError,
  type TroupeErrorCode,
  unknownMethod,
  unserialisable,
  wireCorrupt,
} from "../kernel/index.js";
import type { SignalCalls } from "./call-table.js";
import type { Deadline } from "./deadlines.js";
import type { CallFate, StageView } from "./stage.js";

/** What a message of a lane is made of: one flat list, {@link WIDTH} places for each entry. */
export const CALL = 0;
export const REPLY = 1;
export const FAIL = 2;
export const CANCEL = 3;
export const NOTE = 4;
export const STOP = 5;

export type EntryKind = typeof CALL | typeof REPLY | typeof FAIL | typeof CANCEL | typeof NOTE | typeof STOP;
export const WIDTH = 4;
/** A full outbox leaves at once, so that the other thread begins while this one is still calling. */
export const FULL = WIDTH * 24;
/** Entries read between two looks at the clock. */
export const AT_ONCE = WIDTH * 8;

/** Longer messages are not sent by this side, so that a list of four thousand million places is not walked. */
const LONGEST = WIDTH * 2 ** 16;

export function isBatch(batch: unknown): batch is unknown[] {
  return Array.isArray(batch) && batch.length % WIDTH === 0 && batch.length <= LONGEST;
}

export interface LaneOptions {
  /** Names the lane in errors: "plugin acme.budget", "session worker 1". */
  readonly name: string;
  readonly clock: Clock;
  /** Methods both sides know in this order; they cross as numbers, which cost less than names. */
  readonly methods?: readonly string[];
  readonly serve?: LaneServer;
  readonly onNote?: (topic: string, payload: unknown) => void;
  /** `waiting`: how many calls of this side had no answer. */
  readonly onLost?: (error: TroupeError, waiting: number) => void;
  /** The error of calls that the other side did not answer before its end; default `worker_lost`. */
  readonly whenLost?: () => TroupeError;
  /** The port closed under this side. Says when the lane is lost, by {@link Lane.lose}; default: at once. */
  readonly onClosed?: () => void;
  /** On the serving side: told when a call takes the thread and gives it back, and when several that came together have. */
  readonly stage?: { enter(call: number, method: string): void; leave(): void; rested(): void };
  /** On the serving side: how long calls are begun before the rest waits behind timers and other ports. Default: any time. */
  readonly budgetMs?: number;
  /** On the serving side: a call that has a {@link ServedCall.subject} is answered; its answer leaves with the next message. */
  readonly onAnswered?: (subject: unknown) => void;
  /** On the serving side: why an answer is not sent; the call fails with it. */
  readonly refusalOf?: (answer: unknown) => TroupeError | undefined;
  /** On the serving side: asked before an answer is given, which may be a failure; true: it is not to leave. */
  readonly withholds?: (failed: boolean) => boolean;
  /** Called before a message leaves: what it says is in the same message. */
  readonly beforeSend?: () => void;
  /** The other side runs foreign code: a message that is not one of a lane's loses the lane, and never this thread. */
  readonly foreign?: boolean;
  /** On the calling side: how many deadlines were missed in a row, without one answer. */
  readonly onMissed?: (inRow: number) => void;
  /** On the calling side: takes over the calls of a lane that was lost, instead of rejecting them. */
  readonly orphans?: { readonly stage: StageView; take(call: OrphanedCall, fate: CallFate): void };
}

/** A call whose other side is gone: whoever has it settles it. */
export interface OrphanedCall {
  readonly method: string;
  readonly payload: unknown;
  readonly options: LaneCallOptions;
  /** When its first deadline is over, by the lane's clock; undefined when it has none. */
  readonly expiresAt: number | undefined;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

export interface LaneCallOptions {
  readonly deadlineMs?: number;
  /** What a missed deadline says it was; default `deadlineMs`, which is less for a call that is made again. */
  readonly statedMs?: number;
  /** The code of the error a missed deadline gives; default `call_timeout`. */
  readonly deadlineCode?: TroupeErrorCode;
  /** Told that the deadline was missed; its error is the call's, instead of one with `deadlineCode`. */
  readonly onExpired?: () => TroupeError;
  readonly signal?: AbortSignal | undefined;
  /** An abort is a request: the other side's signal aborts, and its answer still counts. */
  readonly cooperative?: boolean;
  /** Milliseconds the other side may still answer after an abort. Default 0. */
  readonly graceMs?: number;
}

export const NO_OPTIONS: LaneCallOptions = {};

/** A call that waits for its answer. Plain fields and no closures: one of these is made for every call. */
export interface Pending extends Omit<OrphanedCall, "expiresAt"> {
  readonly id: number;
  deadline: Deadline | undefined;
  /** The calls of this call's signal, itself among them. */
  listening: SignalCalls | undefined;
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as { then?: unknown }).then === "function";
}

export function refuseAll(method: string): never {
  throw unknownMethod("This side of the lane", method);
}

/** Answers one call; may return a promise. `call.signal` aborts when the caller gave up. */
type LaneServer = (method: string, payload: unknown, call: ServedCall) => unknown;

/** The served side of a call. The signal is made on first use, because most hooks never look at it. */
export class ServedCall {
  /** The caller's number for it; 0 when no lane is between. */
  readonly id: number;
  /** What the call is about, set by whoever serves it and wants to know when it is answered. */
  subject: unknown;
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

/** The other side sent what no lane sends. */
export function notOfALane(name: string, cause: unknown): TroupeError {
  return wireCorrupt(name, `it is none of a lane's: ${messageOf(cause)}`, cause);
}

export function unreadableMessage(name: string, cause: unknown): TroupeError {
  return wireCorrupt(name, messageOf(cause), cause);
}

export function cannotCross(name: string, cause: unknown): TroupeError {
  return unserialisable(name, `what was sent cannot cross a thread: ${messageOf(cause)}`, cause);
}

/** A call's deadline is over; whoever made the call may have words of its own for that. */
export function missedDeadline(name: string, method: string, options: LaneCallOptions): TroupeError {
  const { deadlineCode = "call_timeout", onExpired, statedMs: deadlineMs = options.deadlineMs } = options;
  const message = `${name}: ${method} did not answer within ${deadlineMs} ms.`;
  return onExpired?.() ?? new TroupeError(deadlineCode, message, { retryable: true, details: { method, deadlineMs } });
}
