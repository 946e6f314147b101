import { createTroupe, type Session, type Troupe } from "troupe";
import { expect, test } from "vitest";
import { ask, asking, told, valueIn } from "../../support/asking.js";
import { EMPTY_OBJECT, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const TASK = "test.asks-host:k";
const register = (session: Session, wants: object = {}) =>
  ask(session, ["registerBackgroundTask", { key: "k", label: "Watch", ...wants }]);
const complete = (session: Session, result: unknown) =>
  ask(session, ["completeBackgroundTask", TASK, { state: "completed", result }]);

async function heardBy(session: Session): Promise<readonly string[]> {
  const said = (await session.messages()).filter(({ role }) => role === "user");
  return said.map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
}

const turnsOf = async (troupe: Troupe, id: string) => (await (await troupe.session(id)).info()).turns;

// §15.75
test("a parked session wakes for the end of its task and has it as a turn, once, also over a restart", async () => {
  const path = await tempFolder();
  const first = await createTroupe(asking("worker", { store: { path } }));
  const session = await first.session("a");
  await session.turn("hello");
  await register(session, { deliver: "turn" });
  await session.park();
  expect((await session.info()).state).toBe("parked");
  const other = await first.session("other");
  await other.turn("hello");
  await complete(session, { files: 3 });
  await until("the session had its turn", async () => (await turnsOf(first, "a")) === 2);
  await first.close();
  const troupe = await startTroupe(asking("worker", { store: { path } }));
  const again = await troupe.session("a");
  expect(await heardBy(again)).toEqual(["hello", `The task ${TASK} (Watch) is done. Its result:\n{"files":3}`]);
  expect(await again.tasks()).toMatchObject([{ id: TASK, state: "completed", result: { files: 3 } }]);
  expect(await turnsOf(troupe, "a")).toBe(2);
});

test("an end can be said into the turn that runs", async () => {
  let goOn: (value: string) => void = () => {};
  const gone = new Promise<string>((resolve) => {
    goOn = resolve;
  });
  const gate = { description: "Waits", inputSchema: EMPTY_OBJECT, execute: () => gone };
  const troupe = await startTroupe(asking("worker", { tools: { gate } }));
  const session = await troupe.session("a");
  const calls = [
    ["registerBackgroundTask", { key: "k", deliver: "steer" }],
    ["completeBackgroundTask", TASK, "completed"],
  ];
  // In one batch: nothing is told into the turn before the gate opens.
  const batch = [{ call: "ask_host", args: { calls } }, { call: "gate" }];
  const turn = session.turn(told({ calls: batch }, { say: "done" }));
  await until("the end waits for the turn", async () => (await session.inputs()).length === 1);
  goOn("open");
  await turn;
  expect((await heardBy(session)).slice(1)).toEqual([`The task ${TASK} is done.`]);
  expect(await turnsOf(troupe, "a")).toBe(1);
});

test("a session whose end somebody awaits is not told of it", async () => {
  const troupe = await startTroupe(asking("worker"));
  const session = await troupe.session("a");
  await register(session, { deliver: "turn" });
  const ended = session.awaitTask(TASK);
  expect(await session.awaitTask(TASK, { waitMs: 1 })).toMatchObject({ state: "running" });
  await complete(session, 7);
  expect(await ended).toMatchObject({ state: "completed", result: 7 });
  expect(await session.inputs()).toEqual([]);
  expect(await turnsOf(troupe, "a")).toBe(0);
  expect((await refusalOf(session.awaitTask("nothing"))).code).toBe("task_unknown");
  expect((await refusalOf(session.cancelTask("no id at all"))).code).toBe("invalid_task");
});

test("a task goes with its session: closed it is cancelled, forked it stays, deleted it is gone", async () => {
  const path = await tempFolder();
  const troupe = await startTroupe(asking("worker", { store: { path } }));
  const session = await troupe.session("a");
  await session.turn("hello");
  await register(session);
  const fork = await session.fork({ id: "b" });
  expect(await fork.tasks()).toEqual([]);
  await session.close();
  const opened = await troupe.session("a");
  expect(await opened.tasks()).toMatchObject([{ id: TASK, state: "cancelled" }]);
  await troupe.deleteSession("a");
  const late = await refusalOf(opened.awaitTask(TASK));
  expect(late.code).toBe("task_unknown");
});

// §15.75
test("a session sees tasks of the session it was made from when they are for it too", async () => {
  const troupe = await startTroupe(asking("worker"));
  const session = await troupe.session("a");
  await session.turn("hello");
  await register(session);
  await ask(session, ["registerBackgroundTask", { key: "shown", visibility: "descendants" }]);
  const fork = await session.fork({ id: "b" });
  const [listed, seen, unseen, unnamed] = await ask(
    fork,
    ["listBackgroundTasks"],
    ["validateAsyncHandlesVisible", ["test.asks-host:shown"]],
    ["validateAsyncHandlesVisible", [TASK]],
    ["listBackgroundTasks", "a"],
  );
  expect(valueIn<{ id: string }[]>(listed).map(({ id }) => id)).toEqual(["test.asks-host:shown"]);
  expect(seen).toEqual({});
  expect(unseen).toEqual({ error: "task_unknown" });
  expect(unnamed).toEqual({ error: "session_not_visible" });
  // Those above see it by naming it, and may give it theirs.
  await register(fork);
  expect(await ask(session, ["cancelAllBackgroundTasks"])).toMatchObject([{ value: { length: 2 } }]);
  expect(await ask(session, ["transferAsyncHandles", "b", "a", [TASK]])).toEqual([{}]);
  expect(await session.tasks()).toMatchObject([
    { id: "test.asks-host:shown", state: "cancelled" },
    { id: TASK, state: "running" },
  ]);
  expect(await fork.tasks()).toEqual([]);
});

test("an export has the tasks of its session, and an import under another name has them as its own", async () => {
  const troupe = await startTroupe(asking("worker", { store: { path: await tempFolder() } }));
  const session = await troupe.session("a");
  await session.turn("hello");
  await register(session, { deliver: "turn" });
  const { sessionId } = await troupe.importSession(await troupe.exportSession("a"), { id: "b" });
  const imported = await troupe.session(sessionId);
  expect(await imported.tasks()).toMatchObject([{ id: TASK, sessionId: "b", state: "running" }]);
  await complete(imported, 1);
  expect(await session.tasks()).toMatchObject([{ id: TASK, state: "running" }]);
});
