import type { Session } from "troupe";
import { expect, test } from "vitest";
import { ask, told } from "../../support/asking.js";
import { firstToolValue, fixture, plugin, startTroupe, until } from "../../support/runtime.js";

const TASK = "test.works-on:k";

const withTools = () =>
  startTroupe({
    model: fixture("models/told.mjs"),
    builtInTools: ["await_task", "list_tasks", "cancel_task"],
    plugins: [{ module: plugin("works-on"), permissions: "all", blockedMs: 60_000 }],
  });

const call = async (session: Session, tool: string, args: object = {}) =>
  firstToolValue(await session.turn(told({ call: tool, args }, { say: "done" })));
const spawn = (session: Session, acts: readonly unknown[], wants: object = {}) =>
  ask(session, ["spawnManagedTask", { job: "acts", key: "k", label: "Index", input: { acts }, ...wants }]);

test("a model lists its tasks, waits for one, and is not told of that end again", async () => {
  const troupe = await withTools();
  const session = await troupe.session("a");
  expect(await call(session, "list_tasks")).toEqual({ tasks: [] });
  await spawn(
    session,
    [
      ["progress", { done: 1 }],
      ["sleep", 200],
      ["step", "one"],
    ],
    { deliver: "turn" },
  );
  expect(await call(session, "await_task", { task: TASK, wait_seconds: 0 })).toMatchObject({
    task: TASK,
    label: "Index",
    kind: "managed",
  });
  expect(await call(session, "await_task", { task: TASK })).toEqual({
    task: TASK,
    label: "Index",
    kind: "managed",
    state: "completed",
    progress: { done: 1 },
    result: ["one"],
  });
  expect(await call(session, "list_tasks")).toMatchObject({ tasks: [{ task: TASK, state: "completed" }] });
  expect((await session.info()).turns).toBe(4);
});

test("a model stops a task, and reads why one it does not have cannot be spoken of", async () => {
  const troupe = await withTools();
  const session = await troupe.session("a");
  await spawn(session, [["wait"]]);
  expect(await call(session, "cancel_task", { task: TASK })).toMatchObject({ task: TASK, state: "cancelled" });
  const { toolCalls } = await session.turn(told({ call: "await_task", args: { task: "nothing" } }, { say: "done" }));
  expect(toolCalls[0]?.output).toMatchObject({
    status: "failure",
    failure: { code: "task_unknown", message: expect.stringContaining("nothing") },
  });
});

test("a turn that is cancelled while it waits leaves the task, whose end is told later", async () => {
  const troupe = await withTools();
  const session = await troupe.session("a");
  await ask(session, ["registerBackgroundTask", { key: "k", deliver: "turn" }]);
  const turn = session.turn(told({ call: "await_task", args: { task: TASK } }, { say: "done" }));
  await until("it waits", async () => (await session.view()).running !== null);
  await session.cancel("enough");
  await turn;
  await ask(session, ["completeBackgroundTask", TASK, "completed"]);
  await until("it had its turn", async () => (await session.info()).turns === 2);
});
