import { Alarm, sleep } from "../../async/index.js";
import {
  asleep,
  asTroupeError,
  awake,
  checkStep,
  checkTaskValue,
  checkWake,
  inLiveState,
  isEnded,
  type Json,
  MAX_PROGRESS,
  type Row,
  type RowChange,
  runAgain,
  type StoredStep,
  type StoredTask,
  stepKey,
  stepped,
  TASK_ORDER,
  TroupeError,
} from "../../kernel/index.js";
import { TASK_SLEEP, TASK_STEP } from "../../plugin/index.js";
import { TASK_STEPS, TASKS } from "../../store/index.js";
import { SLEEP } from "../../tools/index.js";
import { encode } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";
import { JobThreads, type TaskRun, taskOver } from "./job-threads.js";
import { type KnownTask, nameOf, type TaskBook } from "./task-book.js";
import { TaskRuns, taskTimeout } from "./task-runs.js";

/** What running jobs needs of a runtime. */
export interface JobsRuntime {
  readonly options: Pick<Runtime["options"], "clock">;
  readonly crew: Pick<Runtime["crew"], "jobsOf"> & { readonly store: Pick<Runtime["store"], "ask"> };
}

interface JobsParts {
  readonly runtime: JobsRuntime;
  readonly book: TaskBook;
  readonly end: ConstructorParameters<typeof TaskRuns>[0]["end"];
  readonly onFailure: ConstructorParameters<typeof TaskRuns>[0]["onFailure"];
  /** What a run asks its host for, beside what it says of itself. */
  readonly asked: (run: TaskRun, method: string, args: readonly unknown[]) => Promise<unknown>;
}

/** Tasks that are woken at once. */
const PAGE = 64;
const LONGEST_WAIT_MS = 600_000;
const PAUSE_MS = 1_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 300_000;

type OneChange = readonly [next: (stored: StoredTask) => StoredTask, also: () => readonly RowChange[]];

/** The jobs of tasks: run on threads, with steps that are stored, and sleep that costs nothing. */
export class Jobs {
  readonly #parts: JobsParts;
  readonly #threads: JobThreads;
  readonly #runs: TaskRuns;
  readonly #alarm: Alarm;
  /** What runs said last of how far they are, while it is being stored. */
  readonly #progress = new Map<string, Json | undefined>();
  #closed = false;

  constructor(parts: JobsParts) {
    const { runtime, book, end, onFailure } = parts;
    const { clock } = runtime.options;
    this.#parts = parts;
    this.#threads = new JobThreads({
      clock,
      crew: () => runtime.crew,
      serve: (run, method, args) => this.#serve(run, method, args),
      noted: (run, progress) => void this.#noted(run, progress),
    });
    this.#runs = new TaskRuns({ clock, book, threads: this.#threads, end, onFailure });
    this.#alarm = new Alarm({ clock, longestMs: LONGEST_WAIT_MS, look: () => this.#look() });
  }

  /** When the first task that sleeps wakes; null: none does. */
  start(firstWake: number | null): void {
    if (firstWake !== null) this.#alarm.by(firstWake);
  }

  /** Throws `task_job_unknown` for a job the plugin does not have. */
  check(plugin: string, job: string): void {
    this.#threads.check(plugin, job);
  }

  /** Runs a task that is stored as running. */
  begin(task: KnownTask): void {
    this.#runs.begin(task);
  }

  /** It has ended, or is another session's: its run counts for nothing any more. */
  stop(task: KnownTask): void {
    this.#runs.stop(task, taskOver());
  }

  /** The store had it running when this runtime started: whoever ran it is no more. */
  async takeUp(task: KnownTask): Promise<void> {
    const { book, end } = this.#parts;
    const { sessionId, id } = task;
    if (this.#runs.has(task)) return;
    await book.alone(sessionId, async () => {
      const { stored } = await book.get(sessionId, id);
      if (isEnded(stored) || stored.wake !== null || this.#runs.has(task)) return;
      const again = runAgain(stored);
      if (again !== undefined) this.begin((await book.change(sessionId, id, () => again)).task);
      else {
        const message = "It was lost again and again without finishing a step, and is not run any more.";
        await end(task, { state: "failed", error: { code: "task_lost", message } });
      }
    });
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([this.#alarm.close(), this.#runs.close()]);
    await this.#threads.close();
  }

  #serve(run: TaskRun, method: string, args: readonly unknown[]): Promise<unknown> {
    if (method === TASK_STEP) return this.#step(run, ...checkStep(args[0], args[1]));
    if (method === TASK_SLEEP) return this.#sleep(run, args[0], checkWake(args[1]));
    return this.#parts.asked(run, method, args);
  }

  /** In one write with the task's row, which says whose run it is. */
  async #step(run: TaskRun, nth: number, step: StoredStep): Promise<void> {
    await this.#change(run, stepped, () => [stepRow(run, nth, step)]);
  }

  async #sleep(run: TaskRun, nth: unknown, until: number): Promise<"asleep" | "awake"> {
    const [place] = checkStep(nth, { name: SLEEP, outcome: { kind: "value", value: null } });
    const row = stepRow(run, place, { name: SLEEP, outcome: { kind: "slept", until } });
    const { clock } = this.#parts.runtime.options;
    if (until <= clock.wallNow()) {
      await this.#change(run, stepped, () => [row]);
      return "awake";
    }
    const task = await this.#change(
      run,
      (stored) => asleep(stored, Math.min(until, stored.deadline ?? until)),
      () => [row],
    );
    this.#alarm.by(task.stored.wake as number);
    return "asleep";
  }

  /** What cannot be stored, on a full disk say, is tried again for as long as the run is wanted, and told of. */
  async #change(run: TaskRun, ...change: OneChange): Promise<KnownTask> {
    const { clock } = this.#parts.runtime.options;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      try {
        return await this.#changeOnce(run, ...change);
      } catch (error) {
        if (!(error instanceof TroupeError) || error.code !== "store_write_failed") throw error;
        this.#parts.onFailure(run, error);
        await sleep(clock, pauseMs, { signal: run.signal });
      }
    }
  }

  async #changeOnce(
    run: TaskRun,
    next: (stored: StoredTask) => StoredTask,
    also: () => readonly RowChange[],
  ): Promise<KnownTask> {
    const { book } = this.#parts;
    const { sessionId, id } = run;
    const { task } = await book.alone(sessionId, () =>
      book.change(
        sessionId,
        id,
        (stored) => {
          if (isEnded(stored) || stored.run !== run.run || stored.wake !== null) throw taskOver();
          return next(stored);
        },
        also,
      ),
    );
    return task;
  }

  /** One write at a time, of what was said last. */
  async #noted(run: TaskRun, given: Json): Promise<void> {
    const name = nameOf(run);
    const isWriting = this.#progress.has(name);
    this.#progress.set(name, given);
    if (isWriting) return;
    try {
      for (let progress = this.#progress.get(name); progress !== undefined; progress = this.#progress.get(name)) {
        this.#progress.set(name, undefined);
        const checked = checkTaskValue("its progress", progress, MAX_PROGRESS);
        await this.#change(
          run,
          (stored) => inLiveState(stored, "running", checked),
          () => [],
        );
      }
    } catch (error) {
      const { code } = asTroupeError(error, "store_write_failed");
      if (code !== "task_over" && code !== "task_unknown" && !this.#closed) this.#parts.onFailure(run, error);
    } finally {
      this.#progress.delete(name);
    }
  }

  /** Wakes whoever is to be awake; gives when the next one is. */
  async #look(): Promise<number | null> {
    const { crew, options } = this.#parts.runtime;
    const now = options.clock.wallNow();
    try {
      for (;;) {
        const range = { table: TASKS, owner: TASK_ORDER.asleep, until: now + 1, limit: PAGE };
        const rows = await crew.store.ask("rowsInOrder", range);
        if (this.#closed) return null;
        await Promise.all(rows.map((row) => this.#wake(row, now)));
        if (rows.length < PAGE) break;
      }
      const [next] = await crew.store.ask("rowsInOrder", {
        table: TASKS,
        owner: TASK_ORDER.asleep,
        from: now + 1,
        limit: 1,
      });
      return next?.order?.at ?? null;
    } catch {
      return this.#closed ? null : now + PAUSE_MS;
    }
  }

  async #wake(row: Row, now: number): Promise<void> {
    const { book, end } = this.#parts;
    const { key: id, session: sessionId = "" } = row;
    await book.alone(sessionId, async () => {
      const { stored } = (await book.find(sessionId, id)) ?? {};
      // It would be found again and again.
      if (stored === undefined) return book.remove({ sessionId, id });
      if (stored.wake === null || stored.wake > now) return;
      if (stored.deadline !== null && stored.deadline <= now) {
        const { code, message } = taskTimeout();
        await end({ sessionId, id }, { state: "failed", error: { code, message } });
        return;
      }
      const { task } = await book.change(sessionId, id, awake);
      this.begin(task);
    });
  }
}

function stepRow({ sessionId, id }: TaskRun, nth: number, step: StoredStep): RowChange {
  const name = { table: TASK_STEPS, session: sessionId, key: stepKey(id, nth) };
  return { ...name, value: encode(step), expectedVersion: 0 };
}
