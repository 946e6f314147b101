import { type Clock, type Deferred, deferred, ignore, onAbort, type Timer } from "../../async/index.js";
import {
  aborted,
  asTroupeError,
  beginTask,
  checkCompletion,
  checkLiveState,
  checkTaskId,
  checkTaskRegistration,
  checkTaskRequest,
  checkTaskValue,
  deliveredBy,
  endTask,
  inLiveState,
  invalidTask,
  isEnded,
  isToBeStopped,
  isToBeTold,
  type Json,
  MAX_PROGRESS,
  type Row,
  type RowChange,
  recordOf,
  type StoredTask,
  sameJson,
  stepKey,
  TASK_ORDER,
  type TaskCompletion,
  type TaskEnd,
  type TaskError,
  type TaskRecord,
  type TaskRegistration,
  type TaskRequest,
  type TaskSpec,
  TroupeError,
  type TroupeErrorCode,
  told,
  unknownMethod,
} from "../../kernel/index.js";
import { type LeftWork, TASKS } from "../../store/index.js";
import { eventError } from "../../trace/index.js";
import type { Runtime } from "../places/index.js";
import { Jobs, type JobsRuntime } from "./jobs.js";
import { changeOf, type KnownTask, nameOf, readTask, TaskBook } from "./task-book.js";
import type { KeptKind, TaskKeeper } from "./task-kinds.js";
import { inputRow, TaskMaking } from "./task-making.js";
import { TaskTelling, type TellingRuntime } from "./task-telling.js";
import { moveTasks } from "./task-transfer.js";

/** What tasks need of a runtime. */
export interface TasksRuntime extends TellingRuntime, JobsRuntime {
  readonly onLeft: Runtime["onLeft"];
}

type TasksLeft = Pick<LeftWork, "tasks" | "firstTaskWake"> & Partial<Pick<LeftWork, "endedTasks">>;

/** What the run of a job asks its host for. */
type JobAsked = ConstructorParameters<typeof Jobs>[0]["asked"];

/** In whose name something is asked of a task: a plugin's, or the runtime's and the host's own. */
export type By = string | null;

const PAGE = 256;

/**
 * The tasks of all sessions: rows of the store, and nothing in memory of one that does not run here. What runs them is
 * beside this: jobs of plugins here, monitors and subagents by their own {@link TaskKeeper}.
 */
export class Tasks {
  readonly #runtime: TasksRuntime;
  readonly #clock: Clock;
  readonly #book: TaskBook;
  readonly #making: TaskMaking;
  readonly #telling: TaskTelling;
  readonly #jobs: Jobs;
  readonly #keepers = new Map<KeptKind, TaskKeeper>();
  /** Who waits for the end of a task. */
  readonly #waiting = new Map<string, Set<Deferred<TaskRecord>>>();
  /** There may be tasks: a runtime without any looks for none. */
  #any = false;
  #takingUp: Promise<void> | undefined;
  #closed = false;

  constructor(
    runtime: TasksRuntime,
    asked: JobAsked = async (_, method) => Promise.reject(unknownMethod("A job", method)),
  ) {
    this.#runtime = runtime;
    this.#clock = runtime.options.clock;
    this.#book = new TaskBook(() => runtime.crew.store);
    this.#making = new TaskMaking({ clock: this.#clock, book: this.#book, store: () => runtime.crew.store });
    this.#telling = new TaskTelling(runtime, this.#book);
    this.#jobs = new Jobs({
      runtime,
      book: this.#book,
      asked,
      end: ({ sessionId, id }, end) => this.#end(sessionId, id, end),
      onFailure: (task, error) => this.#fails(task, error),
    });
    runtime.onLeft.push((sessionId) => this.#left(sessionId));
  }

  /** May a session have tasks, also such as have ended? */
  get any(): boolean {
    return this.#any;
  }

  /** Also while the runtime closes: what a run has come to is still stored then. */
  get #store(): Pick<Runtime["store"], "ask"> {
    return this.#runtime.crew.store;
  }

  /** What the tasks of a kind are ended and taken up by. Before the runtime starts. */
  setKind(kind: KeptKind, keeper: TaskKeeper): void {
    this.#keepers.set(kind, keeper);
  }

  /** What the store had when it was opened. */
  start({ tasks, endedTasks = false, firstTaskWake }: TasksLeft): void {
    this.#any = tasks || endedTasks || firstTaskWake !== null;
    this.#jobs.start(firstTaskWake);
    if (tasks) this.#takingUp = this.#takeUp().catch(ignore);
  }

  /**
   * Writes down work that lives elsewhere. `asked`: the same when the call is made again after a crash, which then makes
   * no other task.
   *
   * @example
   * const task = await tasks.register("chat-42", null, { kind: "monitor", id: "monitor:log", label: "tail app.log" });
   */
  async register(sessionId: string, by: By, registration: TaskRegistration, asked?: string): Promise<TaskRecord> {
    const { spec, id: given } = checkTaskRegistration(registration, { owner: by });
    if (spec.onCancel !== null) this.#jobs.check(ownerOf(by), spec.onCancel);
    const id = given ?? this.#making.idOf(spec, asked);
    const isRepeated = given === undefined && spec.key === null;
    const { task } = await this.#begin(sessionId, id, spec, isRepeated);
    return viewOf(task);
  }

  /**
   * Runs a job of a plugin beside the session's turns. Under a key with the same job and input it is the task that is
   * there, also when that has ended.
   */
  async spawn(
    sessionId: string,
    plugin: string,
    kind: "managed" | "hidden",
    request: TaskRequest,
    asked?: string,
  ): Promise<TaskRecord> {
    const spec = checkTaskRequest(request, { kind, owner: plugin });
    this.#jobs.check(plugin, request.job);
    const { task, isNew } = await this.#begin(sessionId, this.#making.idOf(spec, asked), spec, true);
    if (isNew) this.#jobs.begin(task);
    return viewOf(task);
  }

  /** What came of it. Of a task that has ended nothing changes. Gives it as it is then. */
  async complete(sessionId: string, by: By, id: string, end: TaskEnd | TaskCompletion): Promise<TaskRecord> {
    const { state, result, error } = checkCompletion(end);
    const failure =
      state === "failed" ? { code: error?.code ?? "task_failed", message: error?.message ?? "it failed" } : null;
    const task = await this.#book.alone(sessionId, async () => {
      checkOwner(await this.#book.get(sessionId, checkTaskId(id)), by);
      return this.#end(sessionId, id, { state, result: result ?? null, error: failure });
    });
    return viewOf(task);
  }

  /** Between its two live states, and how far it is. One that has ended stays as it is. */
  async transition(
    sessionId: string,
    by: By,
    id: string,
    state: "running" | "idle",
    progress?: Json,
  ): Promise<TaskRecord> {
    const live = checkLiveState(state);
    const how = progress === undefined ? undefined : checkTaskValue("its progress", progress, MAX_PROGRESS);
    const { task } = await this.#book.alone(sessionId, async () => {
      checkOwner(await this.#book.get(sessionId, checkTaskId(id)), by);
      return this.#book.change(sessionId, id, (stored) => {
        const same = stored.state === live && (how === undefined || sameJson(stored.progress, how));
        return same ? stored : inLiveState(stored, live, how);
      });
    });
    return viewOf(task);
  }

  /** Takes it out of the list; nobody is told of an end. One that never was is out of it already. */
  async unregister(sessionId: string, by: By, id: string): Promise<void> {
    await this.#book.alone(sessionId, async () => {
      const known = await this.#book.find(sessionId, checkTaskId(id));
      if (known === undefined) return;
      checkOwner(known, by);
      if (!isEnded(known.stored)) this.#settle({ ...known, stored: this.#ended(known, { state: "cancelled" }) });
      await this.#book.remove(known);
    });
  }

  /** All of a session but the hidden ones, by when they began. */
  async list(sessionId: string): Promise<TaskRecord[]> {
    return (await this.#book.of(sessionId)).filter(({ stored }) => stored.kind !== "hidden").map(viewOf);
  }

  /** Undefined: the session has no such task. */
  async find(sessionId: string, id: string): Promise<TaskRecord | undefined> {
    const known = await this.#book.find(sessionId, checkTaskId(id));
    return known && viewOf(known);
  }

  /**
   * Ends a task as cancelled, and what does its work by its kind: a monitor its processes, a subagent its sessions, an
   * owner is told. Stored first. Gives it as it is then; one that has ended stays as it is.
   */
  async cancel(sessionId: string, id: string): Promise<TaskRecord> {
    const { before, task } = await this.#book.alone(sessionId, async () => ({
      before: await this.#book.get(sessionId, checkTaskId(id)),
      task: await this.#cancelled(sessionId, id),
    }));
    if (!isEnded(before.stored) || isToBeStopped(task.stored)) await this.#stopWork(task);
    return viewOf(task);
  }

  /** All that go on, hidden ones only when that is said; gives them as they are then. */
  async cancelAll(sessionId: string, { hidden = false, except = [] as readonly string[] } = {}): Promise<TaskRecord[]> {
    const cancelled: TaskRecord[] = [];
    for (const { id, stored } of await this.#book.of(sessionId)) {
      if (isEnded(stored) || except.includes(id) || (stored.kind === "hidden" && !hidden)) continue;
      cancelled.push(await this.cancel(sessionId, id));
    }
    return cancelled;
  }

  /**
   * Resolves when no hidden task of a session goes on, also none that another one began; rejects with what the first one
   * failed with. A failure is told once.
   */
  async hiddenEnded(sessionId: string): Promise<void> {
    for (;;) {
      const hidden = (await this.#book.of(sessionId)).filter(({ stored }) => stored.kind === "hidden");
      const live = hidden.find(({ stored }) => !isEnded(stored));
      const failed = hidden.find(({ stored }) => stored.state === "failed");
      if (live !== undefined) await this.awaited(sessionId, live.id);
      else if (failed === undefined) return;
      else {
        for (const { id } of hidden) await this.#book.alone(sessionId, () => this.#book.remove({ sessionId, id }));
        const { code, message } = failed.stored.error ?? { code: "task_failed", message: "it failed" };
        throw new TroupeError(code as TroupeErrorCode, message, { details: { taskId: failed.id } });
      }
    }
  }

  /** They are the other session's from now on, all or none. Those that are not there are left out. */
  async move(from: string, to: string, ids: readonly string[]): Promise<void> {
    for (const [before, after] of await moveTasks(this.#book, { from, to, ids })) {
      if (after.stored.job === null || isEnded(after.stored)) continue;
      this.#jobs.stop(before);
      if (after.stored.wake === null) this.#jobs.begin(after);
    }
  }

  /** How its session is told of its end, from now on; of one that has ended it is told now. */
  async deliver(sessionId: string, id: string, deliver: StoredTask["deliver"]): Promise<TaskRecord> {
    const { task } = await this.#book.alone(sessionId, () =>
      this.#book.change(sessionId, checkTaskId(id), (stored) =>
        stored.deliver === deliver ? stored : deliveredBy(stored, deliver),
      ),
    );
    if (isToBeTold(task.stored)) this.#telling.tell(sessionId, id);
    return viewOf(task);
  }

  /**
   * The task when it has ended, or as it is after so long. Who has the end from here is not told of it again.
   */
  async awaited(
    sessionId: string,
    id: string,
    { waitMs, signal }: { readonly waitMs?: number; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<TaskRecord> {
    const name = nameOf({ sessionId, id: checkTaskId(id) });
    const waiter = deferred<TaskRecord | undefined>();
    // It may be rejected while the task is still looked up.
    waiter.promise.catch(ignore);
    // Before it is looked at: an end in between is heard of.
    const waiting = this.#waiting.get(name) ?? new Set();
    this.#waiting.set(name, waiting.add(waiter as Deferred<TaskRecord>));
    const letGo = onAbort(signal, () => waiter.reject(aborted(signal as AbortSignal)));
    let timer: Timer | undefined;
    try {
      const known = await this.#book.get(sessionId, id);
      if (isEnded(known.stored)) return await this.#heard(known);
      if (waitMs !== undefined) timer = this.#clock.timeout(waitMs, () => waiter.resolve(undefined));
      return (await waiter.promise) ?? viewOf(await this.#book.get(sessionId, id));
    } finally {
      timer?.cancel();
      letGo();
      waiting.delete(waiter as Deferred<TaskRecord>);
      if (waiting.size === 0) this.#waiting.delete(name);
    }
  }

  /** A session is closed, or about to be deleted: its tasks end, whoever does their work. */
  async #left(sessionId: string): Promise<void> {
    if (this.#any) await this.cancelAll(sessionId, { hidden: true });
  }

  /** A session was imported. What went on where it comes from has ended here: it is told so. */
  async imported(sessionId: string): Promise<void> {
    const tasks = await this.#book.of(sessionId);
    this.#any ||= tasks.some(({ stored }) => !isEnded(stored));
    for (const { stored, id } of tasks) if (isToBeTold(stored)) this.#telling.tell(sessionId, id);
  }

  /** Nothing is told or taken up any more. What is stored goes on at the next start. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#takingUp;
    await Promise.all([this.#telling.close(), this.#jobs.close()]);
  }

  /** Within `alone`: what came of a task. */
  async #end(sessionId: string, id: string, end: EndOfTask, also: readonly RowChange[] = []): Promise<KnownTask> {
    const known = await this.#book.get(sessionId, id);
    const steps = known.stored.job === null ? [] : await this.#stepsBehindInput(known);
    const { task, changed } = await this.#book.change(
      sessionId,
      id,
      (stored) => this.#ended({ ...known, stored }, end),
      () => [...steps, ...also],
    );
    if (changed) this.#settle(task);
    return task;
  }

  /** Within `alone`. Its owner's job that is told of it is stored in the same write. */
  async #cancelled(sessionId: string, id: string): Promise<KnownTask> {
    const { stored } = await this.#book.get(sessionId, id);
    const { owner, onCancel, label, key } = stored;
    if (isEnded(stored) || owner === null || onCancel === null) return this.#end(sessionId, id, { state: "cancelled" });
    const input = { taskId: id, label, key };
    const spec = checkTaskRequest({ job: onCancel, input }, { kind: "hidden", owner });
    const now = this.#clock.wallNow();
    const told = { id: this.#clock.uuid(), sessionId, stored: beginTask(spec, now), version: 0 };
    const task = await this.#end(sessionId, id, { state: "cancelled" }, [changeOf(told), inputRow(told, input)]);
    this.#jobs.begin({ ...told, version: 1 });
    return task;
  }

  #ended(known: KnownTask, end: EndOfTask): StoredTask {
    const awaited = this.#waiting.has(nameOf(known));
    return endTask(known.stored, { ...end, now: this.#clock.wallNow(), awaited });
  }

  /** Whoever waits for it hears of the end, which is stored; the session is told when nobody did. */
  #settle(task: KnownTask): void {
    this.#book.letGo(task);
    if (task.stored.job !== null && task.stored.state === "cancelled") this.#jobs.stop(task);
    for (const waiter of this.#waiting.get(nameOf(task)) ?? []) waiter.resolve(viewOf(task));
    if (isToBeTold(task.stored)) this.#telling.tell(task.sessionId, task.id);
  }

  /** The end was heard of by who asked for it. */
  async #heard({ sessionId, id, stored }: KnownTask): Promise<TaskRecord> {
    if (!isToBeTold(stored)) return recordOf(id, sessionId, stored);
    return this.deliver(sessionId, id, "none");
  }

  /** Of a task that was cancelled: has whoever does its work end that. What cannot be ended now is by the next runtime. */
  async #stopWork(task: KnownTask): Promise<void> {
    const { sessionId, id, stored } = task;
    if (stored.kind !== "monitor" && stored.kind !== "subagent") return;
    try {
      await this.#keepers.get(stored.kind)?.cancel(viewOf(task));
      const ended = (now: StoredTask) => (isToBeStopped(now) ? told(now) : now);
      // A session that is gone has no tasks.
      await this.#book.alone(sessionId, () => this.#book.change(sessionId, id, ended)).catch(ignore);
    } catch (error) {
      // The next runtime ends it.
      if (!this.#closed) this.#fails(task, error);
    }
  }

  #fails({ sessionId, id }: Pick<KnownTask, "sessionId" | "id">, thrown: unknown): void {
    const { events } = this.#runtime;
    if (events === undefined) return;
    const error = eventError(asTroupeError(thrown, "task_failed"));
    events.emit({ type: "task_failed", session: sessionId, task: id, error });
  }

  /** `isRepeated`: made again after a crash, the call finds what it made, also when that has ended. */
  #begin(sessionId: string, id: string, spec: TaskSpec, isRepeated: boolean): ReturnType<TaskMaking["begin"]> {
    this.#any = true;
    return this.#making.begin(sessionId, { id, spec, isRepeated });
  }

  /** The input is kept with the record, so that the same request under its key is known. */
  async #stepsBehindInput(task: KnownTask): Promise<RowChange[]> {
    const input = stepKey(task.id, 0);
    return (await this.#book.stepsOf(task)).filter(({ key }) => key !== input);
  }

  /** What was open when the store was closed: ends are told, work that was cancelled is ended, and what goes on is taken up. */
  async #takeUp(): Promise<void> {
    for (let after: Row | undefined; !this.#closed; ) {
      const range = { table: TASKS, owner: TASK_ORDER.open, limit: PAGE, ...(after !== undefined && { after }) };
      const rows = await this.#store.ask("rowsInOrder", range);
      for (const task of rows.map(readTask)) if (task !== undefined) await this.#takeUpOne(task);
      if (rows.length < PAGE) return;
      after = rows.at(-1);
    }
  }

  async #takeUpOne(task: KnownTask): Promise<void> {
    const { stored, sessionId, id } = task;
    if (this.#closed) return;
    // What is slow to end keeps no other task waiting.
    if (isToBeStopped(stored)) return void this.#stopWork(task);
    if (isEnded(stored)) return this.#telling.tell(sessionId, id);
    if (stored.job !== null) return this.#jobs.takeUp(task);
    if (stored.kind !== "monitor" && stored.kind !== "subagent") return;
    try {
      await this.#keepers.get(stored.kind)?.takeUp?.(viewOf(task));
    } catch (error) {
      this.#fails(task, error);
    }
  }
}

interface EndOfTask {
  readonly state: TaskEnd;
  readonly result?: Json;
  readonly error?: TaskError | null;
}

/** Only a plugin has jobs. */
function ownerOf(by: By): string {
  if (by !== null) return by;
  throw invalidTask("its onCancel is a job of a plugin, and no plugin asks for it");
}

export function viewOf({ id, sessionId, stored }: KnownTask): TaskRecord {
  return recordOf(id, sessionId, stored);
}

/** A plugin says of its own tasks what becomes of them; the runtime and the host of all. */
function checkOwner({ id, stored }: KnownTask, by: By): void {
  if (by === null || stored.owner === by) return;
  const whose = stored.owner === null ? "not a plugin's" : `plugin ${stored.owner}'s`;
  throw invalidTask(`${JSON.stringify(id)} is ${whose}, and only its owner says what becomes of it`);
}
