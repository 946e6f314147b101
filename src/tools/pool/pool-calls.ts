import type { MessagePort } from "node:worker_threads";
import { type Json, type JsonObject, TroupeError, type TroupeErrorOptions } from "../../kernel/index.js";
import type { Denials, ErrorData } from "../../wire/index.js";

/** What a pool thread is given when it starts. */
export interface PoolThreadData {
  /** Memory outside of its heap that it may hold between tasks. */
  readonly externalMb?: number | undefined;
  /** What it makes sure it is denied before it imports a tool. */
  readonly denials?: Denials | undefined;
}

/** What the pool asks of one of its threads. */
export type PoolTask =
  | CheckTask
  | JobTask
  | {
      readonly kind: "describe";
      readonly module: string;
      readonly options: unknown;
      readonly stop: Int32Array;
      readonly notes?: MessagePort;
    }
  | {
      readonly kind: "run";
      readonly module: string;
      readonly options: unknown;
      readonly args: Json;
      readonly sessionId: string;
      readonly turnId: string;
      readonly callId: string;
      /** The tool is not to run: what its own code says of the call is wanted. */
      readonly asks?: true;
      /** Shared with the pool: one of {@link STOP_CELL}, through which it tells the tool to stop, and one of {@link BEGUN_CELL}. */
      readonly stop: Int32Array;
      /** With the first task of a thread: where its tools say how far they are. */
      readonly notes?: MessagePort;
    };

/** A plugin's module to be loaded for one run of a job, which is ordered on the port. The task is over when that closes. */
export interface JobTask {
  readonly kind: "job";
  readonly module: string;
  readonly options: unknown;
  readonly port: MessagePort;
  readonly stop: Int32Array;
  readonly notes?: MessagePort;
}

/** Arguments to be checked by a schema: the answer is why they do not fit, or nothing. */
export interface CheckTask {
  readonly kind: "check";
  readonly toolName: string;
  readonly schema: JsonObject;
  readonly args: Json;
  /** Shared with who asked: one of {@link CHECK_CELL}. */
  readonly begun: Int32Array;
}

/** Loading what checks is not yet checking: the time of a check counts from `begun`. */
export const CHECK_CELL = { waiting: 0, begun: 1 } as const;

/** What the cell of a call holds. It is woken up whenever it changes. */
export const STOP_CELL = { running: 0, stopped: 1, over: 2 } as const;

/** The second cell of a call. A call that was taken back is not run by the thread it was given to. */
export const BEGUN_CELL = { waiting: 0, begun: 1, takenBack: 2 } as const;

/** A thread always answers; a task that rejects therefore means that its thread is gone. */
export type PoolAnswer = (
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly error: ErrorData }
) & {
  /** The thread is not as it was: no other task may have it. */
  readonly isSpent?: boolean;
};

/** `what`: of which memory, and how much of it. */
export function toolOutOfMemory(what: string, options?: TroupeErrorOptions): TroupeError {
  const message = `The tool used more memory than its thread may have: ${what}. Let it hold less.`;
  return new TroupeError("tool_out_of_memory", message, options);
}
