import type { Clock } from "../../async/index.js";
import {
  beginTask,
  checkTaskId,
  fingerprint,
  isEnded,
  type Json,
  type RowChange,
  sameJson,
  stepKey,
  TASK_ORDER,
  type TaskSpec,
  TroupeError,
  taskConflict,
  taskIdOf,
} from "../../kernel/index.js";
import { TASK_STEPS, TASKS } from "../../store/index.js";
import { decode, encode } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";
import type { KnownTask, TaskBook } from "./task-book.js";

interface MakingParts {
  readonly clock: Clock;
  readonly book: TaskBook;
  readonly store: () => Pick<Runtime["store"], "ask">;
}

interface Asked {
  readonly id: string;
  readonly spec: TaskSpec;
  /** Made again after a crash, the call finds what it made, also when that has ended. */
  readonly isRepeated: boolean;
}

/** Of one session that go on. */
const MOST_LIVE = 100;
/** Of one session that have ended; beyond them the oldest are forgotten, and all of them after a while. */
const MOST_ENDED = 100;
const REMEMBERED_MS = 7 * 24 * 3_600_000;
const FORGOTTEN_AT_ONCE = 16;

/** Makes the records of tasks: asked for twice, a task is one. */
export class TaskMaking {
  readonly #parts: MakingParts;

  constructor(parts: MakingParts) {
    this.#parts = parts;
  }

  idOf({ owner, key }: TaskSpec, asked: string | undefined): string {
    if (key !== null) return checkTaskId(taskIdOf(owner, key));
    if (asked !== undefined) return checkTaskId(taskIdOf(owner, fingerprint(asked).toString(36)));
    return this.#parts.clock.uuid();
  }

  begin(
    sessionId: string,
    { id, spec, isRepeated }: Asked,
  ): Promise<{ readonly task: KnownTask; readonly isNew: boolean }> {
    const { book, clock } = this.#parts;
    return book.alone(sessionId, async () => {
      const there = await book.find(sessionId, id);
      if (there !== undefined) {
        const isSame = await this.#isSame(there, spec);
        if (!isEnded(there.stored) && !isSame) throw taskConflict(sessionId, id);
        if (isSame && (!isEnded(there.stored) || spec.job !== null || isRepeated)) return { task: there, isNew: false };
      }
      await this.#makeRoom(sessionId);
      const left = there === undefined ? [] : await book.stepsOf(there);
      const input = spec.job === null ? [] : [inputRow({ sessionId, id }, spec.input)];
      const also = [...left.filter(({ key }) => key !== input[0]?.key), ...input];
      const stored = beginTask(spec, clock.wallNow());
      const task = await book.put({ id, sessionId, stored }, { over: there?.version ?? 0, also });
      return { task, isNew: true };
    });
  }

  async #isSame({ sessionId, id, stored }: KnownTask, spec: TaskSpec): Promise<boolean> {
    if (stored.kind !== spec.kind || stored.owner !== spec.owner || stored.job?.name !== spec.job?.name) return false;
    return stored.job === null || sameJson(await this.#input(sessionId, id), spec.input);
  }

  /** The input that a task's job was given, from its row. */
  async #input(sessionId: string, id: string): Promise<Json> {
    const name = { table: TASK_STEPS, session: sessionId, key: stepKey(id, 0) };
    const row = await this.#parts.store().ask("row", name);
    return row === undefined ? null : decode<Json>(row.value);
  }

  async #makeRoom(sessionId: string): Promise<void> {
    const { book, clock, store } = this.#parts;
    const tasks = await book.of(sessionId);
    const ended = tasks.filter(({ stored }) => isEnded(stored) && !stored.untold);
    if (tasks.length - ended.length >= MOST_LIVE) {
      const message = `Session ${sessionId} has ${MOST_LIVE} tasks that go on, and may have no more.`;
      throw new TroupeError("task_limit", message, { details: { sessionId, tasks: MOST_LIVE } });
    }
    for (const old of ended.slice(0, Math.max(ended.length - MOST_ENDED + 1, 0))) await book.remove(old);
    const until = clock.wallNow() - REMEMBERED_MS;
    const range = { table: TASKS, owner: TASK_ORDER.ended, until, limit: FORGOTTEN_AT_ONCE };
    for (const { key: id, session } of await store().ask("rowsInOrder", range))
      await book.remove({ id, sessionId: session ?? "" });
  }
}

/** The row that keeps a job's input beside its task, for every run of the job and to tell whether a second request is the same. */
export function inputRow({ sessionId, id }: Pick<KnownTask, "sessionId" | "id">, input: Json): RowChange {
  return { table: TASK_STEPS, session: sessionId, key: stepKey(id, 0), value: encode(input) };
}
