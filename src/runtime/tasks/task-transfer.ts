import {
  awake,
  invalidTask,
  isEnded,
  monitorOfTask,
  type RowChange,
  type StoredTask,
  taskConflict,
} from "../../kernel/index.js";
import { TASK_STEPS, TASKS } from "../../store/index.js";
import { changeOf, type KnownTask, type TaskBook } from "./task-book.js";

interface Move {
  readonly from: string;
  readonly to: string;
  readonly ids: readonly string[];
}

/** A task before and after. */
type Moved = readonly [from: KnownTask, to: KnownTask];

/** Gives tasks to another session: each with its input and its steps, all of them in one write. */
export async function moveTasks(book: TaskBook, move: Move): Promise<readonly Moved[]> {
  const { from, to, ids } = move;
  if (from === to || ids.length === 0) return [];
  // In one order, whoever gives to whom: two that give to each other do not wait for each other.
  const [first, second] = from < to ? [from, to] : [to, from];
  return book.alone(first, () => book.alone(second, () => moveAll(book, move)));
}

async function moveAll(book: TaskBook, { from, to, ids }: Move): Promise<readonly Moved[]> {
  const changes: RowChange[] = [];
  const moved: Moved[] = [];
  for (const id of new Set(ids)) {
    const task = await book.find(from, id);
    if (task === undefined) continue;
    // What it tells is its session's, wherever its task would be.
    if (monitorOfTask(id) !== undefined && task.stored.owner === null)
      throw invalidTask(`${JSON.stringify(id)} is a monitor, and stays with its session`);
    const there = await book.find(to, id);
    if (there !== undefined && !isEnded(there.stored)) throw taskConflict(to, id);
    const after: KnownTask = { id, sessionId: to, stored: runElsewhere(task.stored), version: there?.version ?? 0 };
    moved.push([task, { ...after, version: after.version + 1 }]);
    changes.push({ table: TASKS, session: from, key: id, value: null, expectedVersion: task.version }, changeOf(after));
    const rows = await book.stepRows(task);
    const keys = new Set(rows.map(({ key }) => key));
    if (there !== undefined) changes.push(...(await book.stepsOf(there)).filter(({ key }) => !keys.has(key)));
    for (const { key, value } of rows) {
      changes.push({ table: TASK_STEPS, session: from, key, value: null });
      changes.push({ table: TASK_STEPS, session: to, key, value });
    }
  }
  if (changes.length > 0) await book.write(changes);
  for (const [task] of moved) book.letGo(task);
  return moved;
}

/** What the run of before still says counts for nothing. */
function runElsewhere(stored: StoredTask): StoredTask {
  return stored.job !== null && !isEnded(stored) && stored.wake === null ? awake(stored) : stored;
}
