import { type Clock, ignore, onAbort, sleep, untilAborted } from "../../async/index.js";
import {
  asTroupeError,
  isEnded,
  type Json,
  putDown,
  runAgain,
  type StoredStep,
  type StoredTask,
  stepOf,
  type TaskEnd,
  type TaskError,
  TroupeError,
} from "../../kernel/index.js";
import type { JobAnswer, JobCall } from "../../tools/index.js";
import { decode } from "../../wire/index.js";
import type { JobThreads, TaskRun } from "./job-threads.js";
import { type KnownTask, nameOf, type TaskBook } from "./task-book.js";

interface RunsParts {
  readonly clock: Clock;
  readonly book: TaskBook;
  readonly threads: JobThreads;
  /** What came of a task, within `alone`. */
  readonly end: (
    task: Pick<KnownTask, "sessionId" | "id">,
    end: { readonly state: TaskEnd; readonly result?: Json; readonly error?: TaskError | null },
  ) => Promise<KnownTask>;
  /** What could not be stored is tried again. */
  readonly onFailure: (task: Pick<KnownTask, "sessionId" | "id">, error: unknown) => void;
}

/** A repaired store may have lost rows. */
const INCOMPLETE: JobAnswer = {
  kind: "failed",
  code: "task_lost",
  message: "What it was asked with, or a step that it had finished, is not in the store any more.",
};

type RunAnswer = JobAnswer | { readonly kind: "lost"; readonly error: TroupeError };

/** The thread of the run is gone, or could not be had: nobody knows how far it came. */
const LOST: readonly string[] = ["worker_lost", "tool_worker_lost", "tool_out_of_memory", "wire_corrupt"];
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 300_000;
/** How long a run that is told to stop may still take before its thread is none of its any more. */
const GRACE_MS = 5_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Runs the jobs of tasks. A run that is lost with its thread is begun again, with its finished steps answered. */
export class TaskRuns {
  readonly #parts: RunsParts;
  readonly #runs = new Map<string, { readonly stop: AbortController; readonly over: Promise<void> }>();
  readonly #closing = new AbortController();
  constructor(parts: RunsParts) {
    this.#parts = parts;
  }

  has(task: Pick<KnownTask, "sessionId" | "id">): boolean {
    return this.#runs.has(nameOf(task));
  }

  /** How many run, or wait for their turn. */
  get size(): number {
    return this.#runs.size;
  }

  /** Runs a task's job as the row has it. */
  begin(task: KnownTask): void {
    if (this.#closing.signal.aborted) return;
    const name = nameOf(task);
    const stop = new AbortController();
    // One run of a task at a time: what an earlier one still does ends first.
    const before = this.#runs.get(name)?.over ?? Promise.resolve();
    this.#runs.get(name)?.stop.abort();
    const own = { stop, over: before.then(() => this.#run(task, stop.signal)).catch(ignore) };
    this.#runs.set(name, own);
    void own.over.then(() => {
      if (this.#runs.get(name) === own) this.#runs.delete(name);
    });
  }

  /** Its task has ended, or is somebody else's: the run is told to stop, and what it says counts for nothing. */
  stop(task: Pick<KnownTask, "sessionId" | "id">, error: TroupeError): void {
    this.#runs.get(nameOf(task))?.stop.abort(error);
  }

  /** Runs stop where they are; the next start takes them up, and none counts as lost. */
  async close(): Promise<void> {
    this.#closing.abort();
    const runs = [...this.#runs.values()];
    for (const { stop } of runs) stop.abort(this.#closing.signal.reason);
    await Promise.all(runs.map(({ over }) => over));
  }

  async #run(from: KnownTask, signal: AbortSignal): Promise<void> {
    let task: KnownTask | undefined = from;
    while (task !== undefined && !signal.aborted) {
      const timeout = this.#deadline(task, signal);
      let answer: RunAnswer | undefined;
      try {
        // A runtime that closes waits for no job.
        answer = await untilAborted(this.#answer(task, timeout.signal), this.#closing.signal).catch(() => undefined);
      } finally {
        timeout.over();
      }
      if (signal.aborted || answer === undefined) break;
      if (timeout.signal.aborted && answer.kind !== "done") {
        const { code, message } = taskTimeout();
        answer = { kind: "failed", code, message };
      }
      if (answer.kind === "asleep") return;
      task = await this.#stored(task, answer, signal);
    }
    if (this.#closing.signal.aborted && task !== undefined) await this.#putDown(task);
  }

  async #answer(task: KnownTask, signal: AbortSignal): Promise<RunAnswer> {
    const { book, threads } = this.#parts;
    const { sessionId, id, stored } = task;
    const { plugin, name } = stored.job as NonNullable<StoredTask["job"]>;
    try {
      const rows = await book.stepRows(task);
      const values = rows.map(({ key, value }) => [stepOf(id, key), decode<unknown>(value)] as const);
      const steps = values.filter((entry): entry is readonly [number, StoredStep] => entry[0] > 0);
      const input = values.find(([nth]) => nth === 0);
      // As a journal that lacks a row: nothing is done again that was done.
      if (input === undefined || steps.length < stored.steps) return INCOMPLETE;
      book.hold(task);
      const call: Omit<JobCall, "member"> = {
        job: name,
        input: input[1] as Json,
        taskId: id,
        sessionId,
        label: stored.label,
        attempt: stored.run,
        steps,
      };
      const run: TaskRun = { sessionId, id, plugin, run: stored.run, signal };
      return await threads.run(call, run, { signal, graceMs: GRACE_MS });
    } catch (thrown) {
      const error = asTroupeError(thrown, "task_failed");
      if (LOST.includes(error.code) || error.retryable) return { kind: "lost", error };
      return { kind: "failed", code: error.code, message: error.message };
    } finally {
      book.letGo(task);
    }
  }

  /** Stores what came of a run, again and again until it is; gives the task when it is to be run again. */
  async #stored(
    task: KnownTask,
    answer: Exclude<RunAnswer, { kind: "asleep" }>,
    signal: AbortSignal,
  ): Promise<KnownTask | undefined> {
    const { clock, book, onFailure } = this.#parts;
    for (let pauseMs = FIRST_PAUSE_MS; !signal.aborted; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      try {
        const next = await book.alone(task.sessionId, () => this.#ended(task, answer));
        if (next !== undefined)
          await sleep(clock, FIRST_PAUSE_MS * 2 ** Math.max(next.stored.losses, 0), { signal }).catch(ignore);
        return next;
      } catch (error) {
        const { code } = asTroupeError(error, "store_write_failed");
        // It has ended meanwhile, with its session.
        if (code === "task_unknown" || code === "session_deleted") return undefined;
        onFailure(task, error);
        await sleep(clock, pauseMs, { signal }).catch(ignore);
      }
    }
    return task;
  }

  async #ended(task: KnownTask, answer: Exclude<RunAnswer, { kind: "asleep" }>): Promise<KnownTask | undefined> {
    const { book, end } = this.#parts;
    const { stored } = await book.get(task.sessionId, task.id);
    if (isEnded(stored) || stored.run !== task.stored.run) return undefined;
    if (answer.kind === "done") await end(task, { state: "completed", result: answer.value });
    else if (answer.kind === "failed") {
      const { code, message } = answer;
      await end(task, { state: "failed", error: { code, message } });
    } else {
      const again = runAgain(stored);
      if (again !== undefined) return (await book.change(task.sessionId, task.id, () => again)).task;
      const message = `It was lost again and again without finishing a step, and is not run any more: ${answer.error.message}`;
      await end(task, { state: "failed", error: { code: "task_lost", message } });
    }
    return undefined;
  }

  /** A signal that aborts with `task_timeout` too. */
  #deadline({ stored }: KnownTask, stopped: AbortSignal): { readonly signal: AbortSignal; readonly over: () => void } {
    const { clock } = this.#parts;
    const controller = new AbortController();
    const letGo = onAbort(stopped, () => controller.abort(stopped.reason));
    const late = () => controller.abort(taskTimeout());
    const leftMs = stored.deadline === null ? Number.POSITIVE_INFINITY : stored.deadline - clock.wallNow();
    // One that is further off than a timer reaches is found by the next runtime.
    const timer = leftMs > LONGEST_TIMER_MS ? undefined : clock.timeout(Math.max(leftMs, 0), late);
    return {
      signal: controller.signal,
      over: () => {
        letGo();
        timer?.cancel();
      },
    };
  }

  async #putDown({ sessionId, id, stored: { run } }: KnownTask): Promise<void> {
    const { book } = this.#parts;
    const put = (stored: StoredTask) => (isEnded(stored) || stored.run !== run ? stored : putDown(stored));
    await book.alone(sessionId, () => book.change(sessionId, id, put)).catch(ignore);
  }
}

export function taskTimeout(): TroupeError {
  return new TroupeError("task_timeout", "The task did not end within its deadlineMs.");
}
