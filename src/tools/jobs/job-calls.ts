import type { Json, StoredStep } from "../../kernel/index.js";

/** What the main thread and a thread that runs jobs say to each other, on a lane of their own. */

/** A run. The main thread's call `run`. */
export interface JobCall {
  /** The plugin's place among those of the thread. */
  readonly member: number;
  readonly job: string;
  readonly input: Json;
  readonly taskId: string;
  readonly sessionId: string;
  readonly label: string;
  readonly attempt: number;
  /** What earlier runs have done, by the step's number. */
  readonly steps: readonly (readonly [nth: number, step: StoredStep])[];
}

/** What became of it. What a job throws is an answer too: a call that fails is one whose thread was lost. */
export type JobAnswer =
  | { readonly kind: "done"; readonly value: Json }
  | { readonly kind: "failed"; readonly code: string; readonly message: string }
  /** It was let go, and is run again. */
  | { readonly kind: "asleep" };

/** The thread's call `host`: a service that the run of this call asks for. */
export type JobAsk = readonly [call: number, method: string, args: readonly unknown[]];

/** The thread's note `progress`, of the run of this call. */
export type JobProgress = readonly [call: number, progress: Json];
