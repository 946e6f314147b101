import { expect, test } from "vitest";
import { type TaskRecord, TroupeError } from "../../../src/kernel/index.js";
import { statesOf, storedTasks } from "../../support/stored-tasks.js";

const settled = async () => {
  for (let n = 0; n < 50; n++) await Promise.resolve();
};
const codeOf = async (promise: Promise<unknown>) =>
  promise.then(
    () => "none",
    (error) => (error as TroupeError).code,
  );

// §15.75
test("work that lives elsewhere is a record of its session, between its live states and at its end", async () => {
  const { tasks, clock } = storedTasks();
  const task = await tasks.register("a", "p", { key: "k", label: "Tail" });
  expect(task).toEqual({
    id: "p:k",
    sessionId: "a",
    kind: "background",
    state: "running",
    label: "Tail",
    key: "k",
    owner: "p",
    visibility: "session",
    progress: null,
    since: clock.wallNow(),
    endedAt: null,
    result: null,
    error: null,
  });
  expect(await tasks.transition("a", "p", "p:k", "idle", { lines: 3 })).toMatchObject({
    state: "idle",
    progress: { lines: 3 },
  });
  clock.advance(5);
  expect(await tasks.complete("a", "p", "p:k", { state: "completed", result: 7 })).toMatchObject({
    state: "completed",
    result: 7,
    endedAt: clock.wallNow(),
  });
  // An end stays: whoever says something else comes too late.
  expect(await tasks.transition("a", "p", "p:k", "running")).toMatchObject({ state: "completed" });
  expect(await tasks.complete("a", "p", "p:k", "failed")).toMatchObject({ state: "completed", result: 7 });
  expect(statesOf(await tasks.list("a"))).toEqual([["p:k", "completed"]]);
  expect(await tasks.list("b")).toEqual([]);
});

test("asked for twice under one key a task is one while it goes on, and begins anew when it has ended", async () => {
  const { tasks } = storedTasks();
  const first = await tasks.register("a", "p", { key: "k" });
  expect(await tasks.register("a", "p", { key: "k" })).toEqual(first);
  expect(await codeOf(tasks.register("a", "p", { key: "k", kind: "monitor" }))).toBe("task_key_conflict");
  await tasks.complete("a", "p", "p:k", "failed");
  expect(await tasks.register("a", "p", { key: "k", kind: "monitor" })).toMatchObject({
    state: "running",
    kind: "monitor",
  });
  expect(await tasks.list("a")).toHaveLength(1);
});

test("a call that is made again after a crash finds the task it made, also when that has ended", async () => {
  const { tasks } = storedTasks();
  const made = await tasks.register("a", "p", {}, "t1:tool:1");
  await tasks.complete("a", "p", made.id, "completed");
  expect(await tasks.register("a", "p", {}, "t1:tool:1")).toMatchObject({ id: made.id, state: "completed" });
  expect((await tasks.register("a", "p", {}, "t1:tool:2")).id).not.toBe(made.id);
});

test("only its owner says what becomes of a plugin's task; anybody who sees it may cancel it", async () => {
  const { tasks } = storedTasks();
  await tasks.register("a", "p", { key: "k" });
  expect(await codeOf(tasks.complete("a", "q", "p:k", "completed"))).toBe("invalid_task");
  expect(await codeOf(tasks.transition("a", "q", "p:k", "idle"))).toBe("invalid_task");
  expect(await codeOf(tasks.unregister("a", "q", "p:k"))).toBe("invalid_task");
  expect(await codeOf(tasks.complete("a", "p", "p:other", "completed"))).toBe("task_unknown");
  expect(await codeOf(tasks.cancel("a", "p:other"))).toBe("task_unknown");
  expect(await codeOf(tasks.complete("a", "p", "p:k", "running" as never))).toBe("invalid_task");
  expect(await tasks.cancel("a", "p:k")).toMatchObject({ state: "cancelled" });
});

test("a session hears of an end once, by the way that was asked for, and never of a cancellation", async () => {
  const { tasks, told } = storedTasks();
  await tasks.register("a", "p", { key: "turn", label: "Index", deliver: "turn" });
  await tasks.register("a", "p", { key: "steer", deliver: "steer" });
  await tasks.register("a", "p", { key: "none" });
  await tasks.register("a", "p", { key: "cancelled", deliver: "turn" });
  await tasks.complete("a", "p", "p:turn", { state: "completed", result: { files: 3 } });
  await tasks.complete("a", "p", "p:steer", { state: "failed", error: { message: "no disk" } });
  await tasks.complete("a", "p", "p:none", "completed");
  await tasks.cancel("a", "p:cancelled");
  await settled();
  expect(told).toEqual([
    { session: "a", text: 'The task p:turn (Index) is done. Its result:\n{"files":3}', steers: false },
    { session: "a", text: "The task p:steer failed: no disk", steers: true },
  ]);
});

test("an end that somebody waited for is heard of there and nowhere else", async () => {
  const { tasks, told, clock } = storedTasks();
  await tasks.register("a", "p", { key: "k", deliver: "turn" });
  const waiting = tasks.awaited("a", "p:k");
  const waitingShortly = tasks.awaited("a", "p:k", { waitMs: 5 });
  await settled();
  clock.advance(5);
  expect(await waitingShortly).toMatchObject({ state: "running" });
  await tasks.complete("a", "p", "p:k", { state: "completed", result: 1 });
  expect(await waiting).toMatchObject({ state: "completed", result: 1 });
  await settled();
  expect(told).toEqual([]);
});

test("an end that cannot be delivered is told of, and tried again until the session has it", async () => {
  const { tasks, told, clock, events, onDeliver } = storedTasks();
  let refusals = 2;
  onDeliver(async (write) => {
    if (refusals-- > 0) throw new TroupeError("mailbox_full", "It is full.");
    write();
  });
  await tasks.register("a", "p", { key: "k", deliver: "turn" });
  await tasks.complete("a", "p", "p:k", "completed");
  for (let n = 0; n < 3; n++) {
    await settled();
    clock.advance(1_000);
  }
  await settled();
  expect(told).toHaveLength(1);
  expect(events.map(({ type }) => type)).toEqual(["task_failed", "task_failed"]);
});

test("an end that somebody asks for while it waits to be delivered is not delivered any more", async () => {
  const { tasks, told, clock, onDeliver } = storedTasks();
  let refusals = 1;
  onDeliver(async (write) => {
    if (refusals-- > 0) throw new TroupeError("mailbox_full", "It is full.");
    write();
  });
  await tasks.register("a", "p", { key: "k", deliver: "turn" });
  await tasks.complete("a", "p", "p:k", { state: "completed", result: 1 });
  await settled();
  expect(await tasks.awaited("a", "p:k")).toMatchObject({ result: 1 });
  clock.advance(1_000);
  await settled();
  expect(told).toEqual([]);
});

test("the next runtime tells of an end that was stored and not delivered", async () => {
  const first = storedTasks();
  first.onDeliver(() => new Promise(() => {}));
  await first.tasks.register("a", "p", { key: "k", deliver: "turn" });
  await first.tasks.complete("a", "p", "p:k", "completed");
  const next = storedTasks({ clock: first.clock, backend: first.backend });
  next.tasks.start({ tasks: true, firstTaskWake: null });
  await settled();
  expect(next.told).toHaveLength(1);
  const again = storedTasks({ clock: first.clock, backend: first.backend });
  again.tasks.start({ tasks: true, firstTaskWake: null });
  await settled();
  expect(again.told).toEqual([]);
});

// §15.75
test("a task of a kind is ended and taken up by whoever does its work, behind what is stored", async () => {
  const first = storedTasks();
  const heard: unknown[] = [];
  const keeper = (what: string) => async (task: TaskRecord) => void heard.push([what, task.id, task.state]);
  first.tasks.setKind("monitor", { cancel: keeper("cancel") });
  await first.tasks.register("a", null, { id: "monitor:log", kind: "monitor" });
  await first.tasks.register("a", null, { id: "monitor:kept", kind: "monitor" });
  await first.tasks.cancel("a", "monitor:log");
  // It has ended: nothing is ended twice.
  await first.tasks.cancel("a", "monitor:log");
  const next = storedTasks({ clock: first.clock, backend: first.backend });
  next.tasks.setKind("monitor", { cancel: keeper("cancel"), takeUp: keeper("takeUp") });
  next.tasks.start({ tasks: true, firstTaskWake: null });
  await settled();
  expect(heard).toEqual([
    ["cancel", "monitor:log", "cancelled"],
    ["takeUp", "monitor:kept", "running"],
  ]);
});

test("a task whose work could not be ended is cancelled all the same, and that is told", async () => {
  const { tasks, events } = storedTasks();
  tasks.setKind("subagent", { cancel: () => Promise.reject(new Error("no way")) });
  await tasks.register("a", null, { id: "s", kind: "subagent" });
  expect(await tasks.cancel("a", "s")).toMatchObject({ state: "cancelled" });
  expect(events).toMatchObject([{ type: "task_failed", task: "s", error: { message: "no way" } }]);
});

test("who stops waiting for a task while it is looked up is told so, and nobody else", async () => {
  const { tasks } = storedTasks();
  const { id } = await tasks.register("a", "p", { key: "k" });
  const unhandled: unknown[] = [];
  const onUnhandled = (error: unknown) => void unhandled.push(error);
  process.on("unhandledRejection", onUnhandled);
  try {
    const stop = new AbortController();
    const waited = codeOf(tasks.awaited("a", id, { signal: stop.signal }));
    stop.abort();
    expect(await waited).toBe("aborted");
    // One that has ended is given although nobody waits any more; the waiting itself was given up.
    await tasks.complete("a", "p", id, "completed");
    const late = new AbortController();
    const given = tasks.awaited("a", id, { signal: late.signal });
    late.abort();
    expect(await given).toMatchObject({ state: "completed" });
    await new Promise((resolve) => setImmediate(resolve));
    expect(unhandled).toEqual([]);
  } finally {
    process.off("unhandledRejection", onUnhandled);
  }
});

test("work whose task was cancelled by a process that was killed before it ended is ended by the next one, and by no third", async () => {
  const first = storedTasks();
  const heard: unknown[] = [];
  first.tasks.setKind("subagent", { cancel: () => new Promise(() => {}) });
  await first.tasks.register("a", null, { id: "s", kind: "subagent", deliver: "turn" });
  void first.tasks.cancel("a", "s");
  await settled();
  let told: unknown[] = [];
  for (let process = 2; process <= 4; process++) {
    const next = storedTasks({ clock: first.clock, backend: first.backend });
    next.tasks.setKind("subagent", {
      cancel: async ({ id, state }) => {
        heard.push([process, id, state]);
        if (process === 2) throw new Error("no way");
      },
    });
    next.tasks.start({ tasks: true, firstTaskWake: null });
    await settled();
    told = [...told, ...next.told];
    // Asked for again it is cancelled already.
    expect(await next.tasks.cancel("a", "s")).toMatchObject({ state: "cancelled" });
  }
  expect(heard).toEqual([
    [2, "s", "cancelled"],
    [2, "s", "cancelled"],
    [3, "s", "cancelled"],
  ]);
  expect(told).toEqual([]);
});

test("a session that is closed ends its tasks, and nobody else's", async () => {
  const { tasks, leave } = storedTasks();
  for (const id of ["a", "b"]) await tasks.register(id, "p", { key: "k" });
  await leave("a");
  expect(statesOf(await tasks.list("a"))).toEqual([["p:k", "cancelled"]]);
  expect(statesOf(await tasks.list("b"))).toEqual([["p:k", "running"]]);
});

// §15.75
test("all but those that are kept are cancelled, and only those that went on are given", async () => {
  const { tasks } = storedTasks();
  for (const key of ["one", "two", "three"]) await tasks.register("a", "p", { key });
  await tasks.complete("a", "p", "p:one", "completed");
  expect(statesOf(await tasks.cancelAll("a", { except: ["p:two"] }))).toEqual([["p:three", "cancelled"]]);
  expect(statesOf(await tasks.list("a"))).toEqual([
    ["p:one", "completed"],
    ["p:three", "cancelled"],
    ["p:two", "running"],
  ]);
});

// §15.75
test("tasks go over to another session, all of them or none", async () => {
  const { tasks, told } = storedTasks();
  for (const key of ["one", "two"]) await tasks.register("a", "p", { key, deliver: "turn" });
  await tasks.move("a", "b", ["p:one", "p:none"]);
  expect(statesOf(await tasks.list("a"))).toEqual([["p:two", "running"]]);
  expect(await tasks.list("b")).toMatchObject([{ id: "p:one", sessionId: "b" }]);
  await tasks.register("b", "p", { key: "two" });
  expect(await codeOf(tasks.move("a", "b", ["p:two"]))).toBe("task_key_conflict");
  await tasks.complete("b", "p", "p:one", "completed");
  await settled();
  expect(told).toMatchObject([{ session: "b" }]);
});

test("of a session's tasks a hundred may go on, and of those that ended a hundred are remembered for a week", async () => {
  const { tasks, clock, rows } = storedTasks();
  for (let n = 0; n < 105; n++) {
    await tasks.register("a", "p", { key: `done${n}` });
    await tasks.complete("a", "p", `p:done${n}`, "completed");
    clock.advance(1);
  }
  expect(rows("a")).toHaveLength(100);
  for (let n = 0; n < 100; n++) await tasks.register("a", "p", { key: `live${n}` });
  expect(await codeOf(tasks.register("a", "p", { key: "one more" }))).toBe("invalid_task");
  expect(await codeOf(tasks.register("a", "p", { key: "more" }))).toBe("task_limit");
  clock.advance(8 * 24 * 3_600_000);
  for (let n = 0; n < 8; n++) await tasks.register("b", "p", { key: `live${n}` });
  expect(rows("a")).toHaveLength(100);
  expect(rows("b")).toHaveLength(8);
});

// §15.75
test("a task that is taken out of the list is gone, and whoever waits for it hears that it ended", async () => {
  const { tasks, rows, told } = storedTasks();
  await tasks.register("a", "p", { key: "k", deliver: "turn" });
  const waiting = tasks.awaited("a", "p:k");
  await settled();
  await tasks.unregister("a", "p", "p:k");
  await tasks.unregister("a", "p", "p:k");
  expect(await waiting).toMatchObject({ state: "cancelled" });
  expect(rows("a")).toEqual([]);
  await settled();
  expect(told).toEqual([]);
});

test("two that end a task at once end it once", async () => {
  const { tasks, told } = storedTasks();
  await tasks.register("a", "p", { key: "k", deliver: "turn" });
  const ends = [1, 2, 3].map((result) => tasks.complete("a", "p", "p:k", { state: "completed", result }));
  expect((await Promise.all(ends)).map(({ result }) => result)).toEqual([1, 1, 1]);
  await settled();
  expect(told).toHaveLength(1);
});
