import assert from "node:assert/strict";
import {
  asleep,
  awake,
  beginTask,
  checkTaskRequest,
  endTask,
  type RowChange,
  type StoredTask,
  stepKey,
  stepPrefix,
  stepped,
  TASK_ORDER,
  TASK_STEPS,
  TASKS,
  taskOrder,
  told,
} from "../../kernel/index.js";
import { decode, encode } from "../../wire/index.js";
import { changedRows, rowsWrite, versionOf } from "./sample-rows.js";
import {
  type Cases,
  committed,
  deleteOf,
  fork,
  refusal,
  type TestedBackend,
  turn,
  whichAccepted,
  written,
} from "./samples.js";

const NOW = 1_700_000_000_000;

function begun(at = NOW): StoredTask {
  return beginTask(checkTaskRequest({ job: "work", deliver: "turn" }, { kind: "managed", owner: "p" }), at);
}

/** A task as it is written over a version; 0: there is none yet. */
function taskRow(session: string, id: string, stored: StoredTask, over: number): RowChange {
  const row = { table: TASKS, session, key: id, value: encode(stored) };
  return { ...row, expectedVersion: over, order: taskOrder(stored) };
}

function stepRow(session: string, id: string, nth: number, value: unknown = nth): RowChange {
  return { table: TASK_STEPS, session, key: stepKey(id, nth), value: encode(value), expectedVersion: 0 };
}

const gone = ({ table, key, session }: RowChange): RowChange => ({
  table,
  key,
  value: null,
  ...(session !== undefined && { session }),
});

async function placesOf(backend: TestedBackend, owner: string, more: object = {}): Promise<string[]> {
  const rows = await backend.rowsInOrder({ table: TASKS, owner, limit: 100, ...more });
  return rows.map(({ session, key, order }) => `${session} ${key} ${(order?.at ?? 0) - NOW}`);
}

async function stepsOf(backend: TestedBackend, session: string, id: string): Promise<unknown[]> {
  const rows = await backend.rows({ table: TASK_STEPS, session, prefix: stepPrefix(id), limit: 100 });
  return rows.map(({ value }) => decode(value));
}

/** Tasks, with the input and the steps of each: what a run may write, and what a starting runtime looks for. */
export const STORED_TASKS: Cases = {
  async "a step is stored with its task's row, or neither is: of a run whose task was changed meanwhile nothing is"({
    backend,
  }) {
    await changedRows(backend, taskRow("a", "p:k", begun(), 0), stepRow("a", "p:k", 0));
    await changedRows(backend, taskRow("a", "p:k", stepped(begun()), 1), stepRow("a", "p:k", 1));
    // Taken up by somebody else.
    await changedRows(backend, taskRow("a", "p:k", awake(begun()), 2));
    const [late] = await written(backend, [
      rowsWrite(taskRow("a", "p:k", stepped(begun()), 2), stepRow("a", "p:k", 2)),
    ]);
    assert.equal(refusal(late).code, "row_conflict");
    assert.deepEqual(await stepsOf(backend, "a", "p:k"), [0, 1]);
    assert.equal(await versionOf(backend, { table: TASKS, session: "a", key: "p:k" }), 3);
  },

  async "a step that is stored is not stored again, and neither is what is written with it"({ backend }) {
    await changedRows(backend, taskRow("a", "p:k", begun(), 0), stepRow("a", "p:k", 1));
    const [again] = await written(backend, [
      rowsWrite(taskRow("a", "p:k", stepped(begun()), 1), stepRow("a", "p:k", 1, "again")),
    ]);
    assert.equal(refusal(again).code, "row_conflict");
    assert.deepEqual(await stepsOf(backend, "a", "p:k"), [1]);
    assert.equal(await versionOf(backend, { table: TASKS, session: "a", key: "p:k" }), 1);
  },

  async "of two that end a task at once one does, in a batch too"({ backend }) {
    await changedRows(backend, taskRow("a", "p:k", begun(), 0));
    const ends = (["completed", "cancelled"] as const).map((state) =>
      rowsWrite(taskRow("a", "p:k", endTask(begun(), { state, now: NOW + 1 }), 1)),
    );
    assert.deepEqual(whichAccepted(await written(backend, ends)), [true, false]);
  },

  async "what goes on, what sleeps and what has ended stand apart, each by time, over all sessions"({ backend }) {
    const ended = endTask(begun(), { state: "completed", now: NOW + 9 });
    await changedRows(
      backend,
      taskRow("b", "p:open", begun(NOW + 2), 0),
      taskRow("a", "p:open", begun(NOW + 1), 0),
      taskRow("a", "p:untold", { ...ended, since: NOW + 3 }, 0),
      taskRow("c", "p:late", asleep(begun(), NOW + 8), 0),
      taskRow("a", "p:early", asleep(begun(), NOW + 4), 0),
      taskRow("a", "p:told", told(ended), 0),
    );
    const open = ["a p:open 1", "b p:open 2", "a p:untold 3"];
    assert.deepEqual(await placesOf(backend, TASK_ORDER.open), open);
    assert.deepEqual(await placesOf(backend, TASK_ORDER.asleep), ["a p:early 4", "c p:late 8"]);
    assert.deepEqual(await placesOf(backend, TASK_ORDER.asleep, { until: NOW + 8 }), ["a p:early 4"]);
    assert.deepEqual(await placesOf(backend, TASK_ORDER.asleep, { from: NOW + 5, limit: 1 }), ["c p:late 8"]);
    assert.deepEqual(await placesOf(backend, TASK_ORDER.ended), ["a p:told 9"]);
    await changedRows(backend, taskRow("a", "p:early", awake(begun(NOW + 5)), 1));
    assert.deepEqual(await placesOf(backend, TASK_ORDER.open), [...open, "a p:early 5"]);
    assert.deepEqual(await placesOf(backend, TASK_ORDER.asleep), ["c p:late 8"]);
  },

  async "a task's end takes its steps along in one write, and no other task's"({ backend }) {
    const steps = [1, 2, 3].map((nth) => stepRow("a", "p:k", nth));
    await changedRows(backend, taskRow("a", "p:k", begun(), 0), ...steps, stepRow("a", "p:k2", 1, "another's"));
    const end = endTask(begun(), { state: "completed", now: NOW + 1 });
    await changedRows(backend, taskRow("a", "p:k", end, 1), ...steps.map(gone));
    assert.deepEqual(await stepsOf(backend, "a", "p:k"), []);
    assert.deepEqual(await stepsOf(backend, "a", "p:k2"), ["another's"]);
  },

  async "tasks go over to another session in one write, or stay"({ backend }) {
    const task = taskRow("a", "p:k", begun(), 0);
    await changedRows(backend, task, stepRow("a", "p:k", 1), taskRow("c", "p:k", begun(), 0));
    const to = (session: string) =>
      rowsWrite(gone(task), taskRow(session, "p:k", begun(), 0), stepRow(session, "p:k", 1));
    assert.deepEqual(whichAccepted(await written(backend, [to("c")])), [false]);
    assert.deepEqual(await placesOf(backend, TASK_ORDER.open), ["a p:k 0", "c p:k 0"]);
    assert.deepEqual(whichAccepted(await written(backend, [to("b")])), [true]);
    assert.deepEqual(await placesOf(backend, TASK_ORDER.open), ["b p:k 0", "c p:k 0"]);
    assert.deepEqual(await stepsOf(backend, "b", "p:k"), [1]);
  },

  async "tasks go with their session when it is deleted, a run of them writes nothing any more, and a fork has none"({
    backend,
  }) {
    await committed(backend, turn("a", 1));
    await changedRows(backend, taskRow("a", "p:k", begun(), 0), stepRow("a", "p:k", 1));
    await committed(backend, fork("b", "a@1.0"));
    assert.deepEqual(await backend.rows({ table: TASKS, session: "b", limit: 10 }), []);
    assert.deepEqual(whichAccepted(await written(backend, [deleteOf("a")])), [true]);
    assert.deepEqual(await placesOf(backend, TASK_ORDER.open), []);
    assert.deepEqual(await stepsOf(backend, "a", "p:k"), []);
    const [late] = await written(backend, [rowsWrite(taskRow("a", "p:k", begun(), 0), stepRow("a", "p:k", 2))]);
    assert.equal(refusal(late).code, "session_deleted");
  },
};
