import { expect, test } from "vitest";
import {
  asleep,
  awake,
  beginTask,
  checkCompletion,
  checkStep,
  checkTaskId,
  checkTaskRegistration,
  checkTaskRequest,
  checkWake,
  deliveredBy,
  endedElsewhere,
  endTask,
  isStoredTask,
  isToBeStopped,
  isToBeTold,
  putDown,
  recordOf,
  runAgain,
  type StoredTask,
  stepKey,
  stepOf,
  stepped,
  taskOfStep,
  taskOrder,
  tellingOf,
  told,
} from "../../../src/kernel/index.js";

const request = (fields: object = {}) => checkTaskRequest({ job: "work", ...fields }, { kind: "managed", owner: "p" });
const begun = (fields: object = {}): StoredTask => beginTask(request(fields), 1_000);
const codeOf = (check: () => unknown) => {
  try {
    check();
    return "none";
  } catch (error) {
    return (error as { code: string }).code;
  }
};

test("a task is found among the open ones, by its waking, or among the ended, as it goes on", () => {
  const task = begun({ deliver: "turn" });
  expect(taskOrder(task)).toEqual({ owner: "open", at: 1_000 });
  expect(taskOrder(asleep(task, 5_000))).toEqual({ owner: "asleep", at: 5_000 });
  const ended = endTask(task, { state: "completed", now: 2_000, result: 1 });
  // Its end is still to be told.
  expect(taskOrder(ended)).toEqual({ owner: "open", at: 1_000 });
  expect(taskOrder(told(ended))).toEqual({ owner: "ended", at: 2_000 });
});

test("a run that is lost five times in a row without a step is not run again; a step, a sleep or a closing counts anew", () => {
  let task: StoredTask | undefined = begun();
  const runs: number[] = [];
  for (; task !== undefined; task = runAgain(task)) runs.push(task.run);
  expect(runs).toEqual([1, 2, 3, 4, 5]);
  const lost = runAgain(runAgain(begun()) as StoredTask) as StoredTask;
  expect([lost, stepped(lost), asleep(lost, 1), putDown(lost)].map(({ losses }) => losses)).toEqual([2, 0, 0, 1]);
  expect(awake(asleep(lost, 1))).toMatchObject({ state: "running", wake: null, run: 4 });
});

test("an end is told as it was asked for, not when somebody waited for it, and never of a cancellation", () => {
  const task = begun({ deliver: "steer" });
  const end = { state: "completed", now: 2_000 } as const;
  expect(endTask(task, end).untold).toBe(true);
  expect(endTask(task, { ...end, awaited: true }).untold).toBe(false);
  expect(endTask(task, { ...end, state: "cancelled" }).untold).toBe(false);
  expect(endTask(begun(), end).untold).toBe(false);
  const ended = endTask(begun(), end);
  expect(endTask(ended, { ...end, state: "failed" })).toBe(ended);
  expect(deliveredBy(ended, "turn").untold).toBe(true);
  expect(deliveredBy(endTask(begun(), { ...end, state: "cancelled" }), "turn").untold).toBe(false);
});

test("a cancelled task whose work somebody else does is open until that has ended, and is never told", () => {
  for (const kind of ["monitor", "subagent"] as const) {
    const cancelled = endTask({ ...begun({ deliver: "turn" }), kind, job: null }, { state: "cancelled", now: 2_000 });
    expect([isToBeStopped(cancelled), isToBeTold(cancelled), taskOrder(cancelled).owner]).toEqual([
      true,
      false,
      "open",
    ]);
    expect(deliveredBy(cancelled, "none")).toMatchObject({ untold: true });
    expect(taskOrder(told(cancelled)).owner).toBe("ended");
    // In a copy it is nobody's work.
    expect(endedElsewhere(cancelled)).toEqual(told(cancelled));
  }
});

test("what a session is told of an end names the task and has its result, or why it failed", () => {
  const record = (end: object) =>
    tellingOf(recordOf("p:k", "a", endTask(begun({ label: "Index" }), { state: "completed", now: 1, ...end })));
  expect(record({})).toBe("The task p:k (Index) is done.");
  expect(record({ result: { files: 3 } })).toBe('The task p:k (Index) is done. Its result:\n{"files":3}');
  expect(record({ result: "as text" })).toBe("The task p:k (Index) is done. Its result:\nas text");
  expect(record({ state: "failed", error: { code: "c", message: "no disk" } })).toBe(
    "The task p:k (Index) failed: no disk",
  );
});

test("the rows of a task's steps stand in their order, behind its input, and name it", () => {
  const keys = [0, 1, 2, 35, 36, 10_000].map((nth) => stepKey("p:k", nth));
  expect([...keys].sort()).toEqual(keys);
  expect(keys.map((key) => stepOf("p:k", key))).toEqual([0, 1, 2, 35, 36, 10_000]);
  expect(keys.map(taskOfStep)).toEqual(Array(6).fill("p:k"));
  expect(taskOfStep("p:k")).toBeUndefined();
});

test("what a task is asked for with is refused where it is wrong", () => {
  const requests = [
    null,
    { job: "" },
    { job: "work", jobs: 1 },
    { job: "work", deadlineMs: 0 },
    { job: "work", deliver: "now" },
    { job: "work", visibility: "all" },
    { job: "work", key: "two words" },
    { job: "work", label: "x".repeat(201) },
    { job: "work", input: "x".repeat(256 * 1024) },
    { job: "work", input: 1n },
  ];
  expect(requests.map((given) => codeOf(() => checkTaskRequest(given, { kind: "managed", owner: "p" })))).toEqual(
    requests.map(() => "invalid_task"),
  );
  const registrations = [{ kind: "managed" }, { onCancel: 1 }, { id: "a#b" }, { job: "work" }];
  expect(registrations.map((given) => codeOf(() => checkTaskRegistration(given, { owner: "p" })))).toEqual(
    registrations.map(() => "invalid_task"),
  );
  for (const id of ["", "a b", "a#b", "x".repeat(201), 1, "a\u007fb"])
    expect(codeOf(() => checkTaskId(id))).toBe("invalid_task");
  for (const end of ["running", { state: "done" }, { state: "failed", error: "no" }, 1])
    expect(codeOf(() => checkCompletion(end))).toBe("invalid_task");
});

test("what a run says of its steps and its sleep is refused where it is wrong", () => {
  const value = { name: "one", outcome: { kind: "value", value: 1 } };
  expect(checkStep(1, value)).toEqual([1, value]);
  for (const [nth, step] of [
    [0, value],
    [10_001, value],
    [1.5, value],
    [1, { name: "", outcome: value.outcome }],
    [1, { name: "one", outcome: { kind: "slept", until: 1 } }],
    [1, { name: "one" }],
    [1, null],
  ])
    expect(codeOf(() => checkStep(nth, step))).toBe("invalid_task");
  expect([checkWake(5), checkWake(-5)]).toEqual([5, 0]);
  for (const until of [Number.NaN, 1.5, "tomorrow", 9e15]) expect(codeOf(() => checkWake(until))).toBe("invalid_task");
});

test("a row of a file is a task or none, and one that goes on elsewhere has failed in the copy", () => {
  const task = begun({ deliver: "turn" });
  expect(isStoredTask(task)).toBe(true);
  for (const wrong of [null, {}, { ...task, kind: "x" }, { ...task, job: "work" }, { ...task, since: "now" }])
    expect(isStoredTask(wrong)).toBe(false);
  expect(endedElsewhere(task)).toMatchObject({ state: "failed", untold: true, error: { code: "task_lost" } });
  expect(endedElsewhere({ ...task, kind: "background", job: null })).toBeUndefined();
  expect(endedElsewhere(endTask(task, { state: "completed", now: 1 }))).toBeUndefined();
});
