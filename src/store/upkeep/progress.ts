import type { MessagePort } from "node:worker_threads";
import { aborted } from "../../kernel/index.js";

/** How far long work on a store has come. */
export interface StoreProgress {
  /** `mark`, `sweep` and `migrate` count records, `read` and `write` bytes. */
  readonly step: "mark" | "sweep" | "migrate" | "read" | "write";
  readonly done: number;
  /** Null where nobody knows before the end. */
  readonly total: number | null;
}

/** How long work is watched and stopped. */
export interface WorkOptions {
  /** Stops it at its next step; rejects with `aborted`. */
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((progress: StoreProgress) => void) | undefined;
}

/** Between two steps of long work: lets others have the thread, and throws when the work is not wanted any more. */
export type Pause = (progress?: StoreProgress) => Promise<void>;

/** Less than that is no step of its own. */
const STEP_BYTES = 64 * 1024;

export function pauseOf(turn: () => Promise<void>, { signal, onProgress }: WorkOptions): Pause {
  let paused: StoreProgress | undefined;
  return async (progress) => {
    if (progress !== undefined) {
      if (isSmall(progress, paused)) return;
      paused = progress;
      onProgress?.(progress);
    }
    await turn();
    if (signal?.aborted === true) throw aborted(signal);
  };
}

function isSmall({ step, done }: StoreProgress, before: StoreProgress | undefined): boolean {
  if (step !== "read" && step !== "write") return false;
  return done - (before?.step === step ? before.done : 0) < STEP_BYTES;
}

/** What another thread asks for, and where it hears how far it is. */
export type Watched<Request> = Request & { readonly progress?: MessagePort };

export function workOf(progress: MessagePort | undefined, signal: AbortSignal): WorkOptions {
  return { signal, ...(progress && { onProgress: (done) => progress.postMessage(done) }) };
}
