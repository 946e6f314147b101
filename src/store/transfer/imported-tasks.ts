import { endedElsewhere, type Row, stepOf, TASK_STEPS, TASKS, taskOfStep, taskOrder } from "../../kernel/index.js";
import { decode, encode } from "../../wire/index.js";

/**
 * The rows of a session that is imported. A file starts no work: what goes on in the store it comes from ends in the copy,
 * which is told so; what is only written down here, its owner may still complete.
 */
export function withoutWork(rows: readonly Row[]): readonly Row[] {
  if (!rows.some(({ table }) => table === TASKS)) return rows;
  const ended = new Set<string>();
  const tasks = rows.map((row) => {
    const stored = row.table === TASKS ? endedElsewhere(taskIn(row)) : undefined;
    if (stored === undefined) return row;
    ended.add(row.key);
    return { ...row, value: encode(stored), order: taskOrder(stored) };
  });
  // The input stays with the record; of what was done on the way nobody asks any more.
  return tasks.filter(({ table, key }) => {
    const id = table === TASK_STEPS ? taskOfStep(key) : undefined;
    return id === undefined || !ended.has(id) || stepOf(id, key) === 0;
  });
}

function taskIn({ value }: Row): unknown {
  try {
    return decode<unknown>(value);
  } catch {
    return undefined;
  }
}
