import type { Json } from "../../kernel/index.js";
import type { ErrorData } from "../../wire/index.js";

/** What the pool asks of one of its threads. */
export type PoolTask =
  | { readonly kind: "describe"; readonly module: string }
  | {
      readonly kind: "run";
      readonly module: string;
      readonly args: Json;
      readonly sessionId: string;
      readonly turnId: string;
      readonly callId: string;
      /** Shared with the pool, which tells the tool through it to stop: one of {@link STOP_CELL}. */
      readonly stop: Int32Array;
    };

/** What the cell of a call holds. It is woken up whenever it changes. */
export const STOP_CELL = { running: 0, stopped: 1, over: 2 } as const;

/** A thread always answers; a task that rejects therefore means that its thread is gone. */
export type PoolAnswer =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly error: ErrorData };
