import type { Json } from "../kernel/index.js";
import type { ErrorData } from "../wire/index.js";

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
    };

/** A thread always answers; a task that rejects therefore means that its thread is gone. */
export type PoolAnswer =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly error: ErrorData };
