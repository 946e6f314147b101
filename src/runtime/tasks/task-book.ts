import { Serial } from "../../async/index.js";
import {
  isStoredTask,
  type Row,
  type RowChange,
  type StoredTask,
  stepPrefix,
  TroupeError,
  taskOrder,
  taskUnknown,
} from "../../kernel/index.js";
import { TASK_STEPS, TASKS } from "../../store/index.js";
import { decode, encode } from "../../wire/index.js";
import type { Runtime } from "../places/index.js";

/** A task as its row has it. */
export interface KnownTask {
  readonly id: string;
  readonly sessionId: string;
  readonly stored: StoredTask;
  readonly version: number;
}

type TaskName = Pick<KnownTask, "id" | "sessionId">;

/** More than a session's tasks can be. */
const PAGE = 1_000;
/** Somebody else changed a row as often while it was to be changed here. */
const MOST_CONFLICTS = 5;

/** The rows of tasks: read, and changed over the version that was read, one change at a time for each session. */
export class TaskBook {
  readonly #store: () => Pick<Runtime["store"], "ask">;
  readonly #turns = new Map<string, Serial>();
  /** Tasks that run here: nobody else changes their rows. */
  readonly #held = new Map<string, KnownTask>();

  constructor(store: () => Pick<Runtime["store"], "ask">) {
    this.#store = store;
  }

  /** One at a time for each session. Not within another one of the same session. */
  async alone<T>(sessionId: string, work: () => Promise<T>): Promise<T> {
    const turns = this.#turns.get(sessionId) ?? new Serial();
    this.#turns.set(sessionId, turns);
    try {
      return await turns.run(work);
    } finally {
      if (turns.size === 0) this.#turns.delete(sessionId);
    }
  }

  /** Keeps the row of a task that runs here, so that it need not be read to be changed. */
  hold(task: KnownTask): void {
    this.#held.set(nameOf(task), task);
  }

  letGo(task: TaskName): void {
    this.#held.delete(nameOf(task));
  }

  async find(sessionId: string, id: string): Promise<KnownTask | undefined> {
    const held = this.#held.get(nameOf({ sessionId, id }));
    if (held !== undefined) return held;
    const row = await this.#store().ask("row", { table: TASKS, session: sessionId, key: id });
    return row && readTask(row);
  }

  async get(sessionId: string, id: string): Promise<KnownTask> {
    const known = await this.find(sessionId, id);
    if (known === undefined) throw taskUnknown(id);
    return known;
  }

  /** All of a session, by when they began. */
  async of(sessionId: string): Promise<KnownTask[]> {
    const rows = await this.#store().ask("rows", { table: TASKS, session: sessionId, limit: PAGE });
    const tasks = rows.map(readTask).filter((task) => task !== undefined);
    return tasks.sort((a, b) => a.stored.since - b.stored.since || (a.id < b.id ? -1 : 1));
  }

  /** A task that is not there yet, or comes in the place of one that has ended. */
  async put(task: Omit<KnownTask, "version">, { over, also = [] }: { over: number; also?: readonly RowChange[] }) {
    const change = changeOf({ ...task, version: over });
    await this.write([change, ...also]);
    return { ...task, version: over + 1 };
  }

  /**
   * Changes a task to what `next` makes of it; the same again: nothing is written. `also`: what is written with it. Gives
   * the task as it is then, which is `changed` when this changed it.
   */
  async change(
    sessionId: string,
    id: string,
    next: (stored: StoredTask) => StoredTask,
    also: (stored: StoredTask) => readonly RowChange[] = () => [],
  ): Promise<{ readonly task: KnownTask; readonly changed: boolean }> {
    for (let conflicts = 0; ; conflicts++) {
      const known = await this.get(sessionId, id);
      const stored = next(known.stored);
      if (stored === known.stored) return { task: known, changed: false };
      try {
        await this.write([changeOf({ ...known, stored }), ...also(stored)]);
      } catch (error) {
        this.letGo(known);
        if (!isConflict(error) || conflicts === MOST_CONFLICTS) throw error;
        continue;
      }
      const task = { ...known, stored, version: known.version + 1 };
      if (this.#held.has(nameOf(task))) this.#held.set(nameOf(task), task);
      return { task, changed: true };
    }
  }

  /** With its input and its steps. */
  async remove(task: TaskName): Promise<void> {
    this.letGo(task);
    const { sessionId, id } = task;
    await this.write([{ table: TASKS, session: sessionId, key: id, value: null }, ...(await this.stepsOf(task))]);
  }

  /** The rows of a task's input and its steps, in their order. */
  async stepRows({ sessionId, id }: TaskName): Promise<Row[]> {
    const all: Row[] = [];
    for (let after: string | undefined; ; after = all.at(-1)?.key) {
      const range = { table: TASK_STEPS, session: sessionId, prefix: stepPrefix(id), limit: PAGE };
      const rows = await this.#store().ask("rows", { ...range, ...(after !== undefined && { after }) });
      all.push(...rows);
      if (rows.length < PAGE) return all;
    }
  }

  /** The changes that take them away. */
  async stepsOf(task: TaskName): Promise<RowChange[]> {
    const rows = await this.stepRows(task);
    return rows.map(({ key }) => ({ table: TASK_STEPS, session: task.sessionId, key, value: null }));
  }

  async write(changes: readonly RowChange[]): Promise<void> {
    await this.#store().ask("changeRows", { changes });
  }
}

export function changeOf({ sessionId, id, stored, version }: KnownTask): RowChange {
  const row = { table: TASKS, session: sessionId, key: id, value: encode(stored) };
  return { ...row, expectedVersion: version, order: taskOrder(stored) };
}

/** Undefined for a row that is no task: a file that was imported may have any. */
export function readTask({ key, session = "", value, version }: Row): KnownTask | undefined {
  const stored = decoded(value);
  return isStoredTask(stored) ? { id: key, sessionId: session, stored, version } : undefined;
}

function decoded(value: Uint8Array): unknown {
  try {
    return decode<unknown>(value);
  } catch {
    return undefined;
  }
}

export function isConflict(error: unknown): boolean {
  return error instanceof TroupeError && error.code === "row_conflict";
}

// Neither a session's id nor a task's has it.
const BETWEEN = "\u007f";

export function nameOf({ sessionId, id }: TaskName): string {
  return sessionId + BETWEEN + id;
}
