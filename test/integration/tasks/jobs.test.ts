import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createTroupe, type Session, type TaskRecord, type Troupe, type TroupeOptions, usageReport } from "troupe";
import { expect, test } from "vitest";
import { ask, told, valueIn } from "../../support/asking.js";
import { listening } from "../../support/listening.js";
import { fixture, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

type Act = readonly [act: string, ...args: unknown[]];

const working = (options: TroupeOptions = {}, entry: object = {}): TroupeOptions => ({
  drainMs: 500,
  model: fixture("models/told.mjs"),
  plugins: [{ module: plugin("works-on"), permissions: "all", blockedMs: 60_000, ...entry }],
  ...options,
});

/** Begins a task that does these acts. */
async function spawn(session: Session, acts: readonly Act[], wants: object = {}, log?: string): Promise<TaskRecord> {
  const input = { acts, ...(log !== undefined && { log }) };
  const [answer] = await ask(session, ["spawnManagedTask", { job: "acts", input, key: "k", ...wants }]);
  return valueIn<TaskRecord>(answer);
}

const ended = (session: Session, id: string) => session.awaitTask(id, { waitMs: 30_000 });
const linesOf = async (log: string) => (await readFile(log, "utf8").catch(() => "")).split("\n").slice(0, -1);

async function heardBy(session: Session): Promise<readonly string[]> {
  const said = (await session.messages()).filter(({ role }) => role === "user");
  return said.map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
}

// §15.75
test.each(["worker", "inline"] as const)(
  "a job of a plugin in the tier %s runs beside the session's turns, with its steps, and its result is the task's",
  async (tier) => {
    const troupe = await startTroupe(working({}, { tier }));
    const session = await troupe.session("a");
    const task = await spawn(session, [["step", "one", { n: 1 }], ["step", "two"], ["fails", "three"], ["about"]], {
      label: "Work",
    });
    expect(task).toMatchObject({ id: "test.works-on:k", kind: "managed", state: "running", owner: "test.works-on" });
    const { state, result } = await ended(session, task.id);
    expect(state).toBe("completed");
    expect(result).toMatchObject([
      { n: 1 },
      "two",
      "acme_no",
      { taskId: task.id, sessionId: "a", label: "Work", attempt: 1, host: true },
    ]);
    expect((await session.info()).turns).toBe(0);
  },
);

test("asked for again under its key a task is the one that is there, also when it has ended; other input is refused", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const first = await spawn(session, [["wait"]]);
  expect(await spawn(session, [["wait"]])).toEqual(first);
  const [other] = await ask(session, ["spawnManagedTask", { job: "acts", key: "k", input: { acts: [] } }]);
  expect(other?.error).toBe("task_key_conflict");
  expect(await session.cancelTask(first.id)).toMatchObject({ state: "cancelled" });
  expect(await spawn(session, [["wait"]])).toMatchObject({ state: "cancelled", since: first.since });
});

test("a task that cannot be is refused where it is asked for", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const refusals = await ask(
    session,
    ["spawnManagedTask", { job: "nothing" }],
    ["spawnManagedTask", { job: "acts", input: { acts: 1 } }],
    ["spawnManagedTask", { job: "acts" }],
    ["spawnManagedTask", { job: "acts", input: { acts: [] }, deadline: 1 }],
    ["spawnManagedTask", "nobody's", { job: "acts", input: { acts: [] } }],
    ["registerBackgroundTask", { onCancel: "nothing" }],
  );
  expect(refusals.map(({ error }) => error)).toEqual([
    "task_job_unknown",
    "invalid_task",
    "invalid_task",
    "invalid_task",
    "session_not_visible",
    "task_job_unknown",
  ]);
  expect(await session.tasks()).toEqual([]);
});

test("what a job throws fails its task with the code it threw, and a result that is no data with its own", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const thrown = await spawn(session, [["throw", "acme_no", "not today"]], { key: "thrown", deliver: "turn" });
  expect(await ended(session, thrown.id)).toMatchObject({
    state: "failed",
    error: { code: "acme_no", message: "not today" },
  });
});

// §15.75
test("a cancelled job is told to stop, and what it says then counts for nothing", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const task = await spawn(session, [["waitNoted"]], {}, log);
  await until("it waits", async () => (await linesOf(log)).length === 1);
  expect(await session.cancelTask(task.id)).toMatchObject({ state: "cancelled" });
  await until("it was told", async () => (await linesOf(log)).length === 2);
  expect(await session.tasks()).toMatchObject([{ state: "cancelled", error: null }]);
});

test("a task that misses its deadline fails with task_timeout, also when it sleeps", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const running = await spawn(session, [["wait"]], { key: "running", deadlineMs: 50 });
  const asleep = await spawn(session, [["sleep", 1_000_000]], { key: "asleep", deadlineMs: 50 });
  for (const { id } of [running, asleep])
    expect(await ended(session, id)).toMatchObject({ state: "failed", error: { code: "task_timeout" } });
});

test("how far a job is can be seen while it runs", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const task = await spawn(session, [["progress", { done: 1 }], ["progress", { done: 2 }], ["wait"]]);
  await until("it is told", async () => {
    const [seen] = await session.tasks();
    return JSON.stringify(seen?.progress) === '{"done":2}';
  });
  await session.cancelTask(task.id);
});

test("a job that loses its thread is run again from its beginning, and its finished steps are answered", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const acts: Act[] = [["step", "one"], ["fails", "two"], ["exitFirst", 2], ["step", "three"], ["attempt"]];
  const task = await spawn(session, acts, {}, log);
  expect(await ended(session, task.id)).toMatchObject({
    state: "completed",
    result: ["one", "acme_no", "three", 3],
  });
  expect(await linesOf(log)).toEqual(["one", "two", "three"]);
});

test("a job that ends its thread again and again without a step fails with task_lost, and hurts no hook of its plugin", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const task = await spawn(session, [["exit"]], { deliver: "turn" });
  await until("its end is told", async () => (await session.info()).turns === 1);
  expect(await session.tasks()).toMatchObject([{ id: task.id, state: "failed", error: { code: "task_lost" } }]);
  expect(await ask(session, ["listBackgroundTasks"])).toMatchObject([{ value: [{ state: "failed" }] }]);
});

test("a job whose plugin's threads are killed is run again", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const task = await spawn(session, [["step", "one"], ["exitFirst", 0], ["waitNoted"]], {}, log);
  await until("it waits", async () => (await linesOf(log)).length === 2);
  await troupe.kill({ plugin: "test.works-on" });
  await until("it waits again", async () => (await linesOf(log)).length === 3);
  expect(await linesOf(log)).toEqual(["one", "waits", "waits"]);
  expect(await session.cancelTask(task.id)).toMatchObject({ state: "cancelled" });
});

test("a job goes on when its session's worker is killed", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working({ sessionWorkers: 1 }));
  const session = await troupe.session("a");
  await session.turn("hello");
  const task = await spawn(session, [["waitNoted"]], {}, log);
  await until("it waits", async () => (await linesOf(log)).length === 1);
  await troupe.kill({ sessionWorker: 0 });
  expect(await session.turn("still there?")).toMatchObject({ outcome: { type: "finished" } });
  expect(await session.tasks()).toMatchObject([{ id: task.id, state: "running" }]);
  expect(await linesOf(log)).toEqual(["waits"]);
});

test("a task that sleeps wakes by itself, runs again from its beginning, and does nothing twice", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const task = await spawn(session, [["step", "one"], ["sleep", 300], ["step", "two"], ["attempt"]], {}, log);
  await until("it sleeps", async () => (await session.tasks())[0]?.state === "idle");
  expect(await ended(session, task.id)).toMatchObject({ state: "completed", result: ["one", "two", 2] });
  expect(await linesOf(log)).toEqual(["one", "two"]);
});

test("tasks go on in the next process: those that slept wake, those that ran run again and none counts as lost", async () => {
  const folder = await tempFolder();
  const log = join(folder, "log");
  const first = await createTroupe(working({ store: { path: folder } }));
  const session = await first.session("a");
  await spawn(
    session,
    [
      ["sleep", 200],
      ["note", "woke"],
    ],
    { key: "sleeps" },
    log,
  );
  await spawn(session, [["step", "one"], ["waitNoted"]], { key: "runs" }, log);
  await until("both are where they stay", async () => {
    const states = (await session.tasks()).map(({ state }) => state);
    return states.includes("idle") && (await linesOf(log)).includes("waits");
  });
  await first.close();
  for (let n = 0; n < 6; n++) await (await createTroupe(working({ store: { path: folder } }))).close();
  const troupe = await startTroupe(working({ store: { path: folder } }));
  const again = await troupe.session("a");
  expect(await ended(again, "test.works-on:sleeps")).toMatchObject({ state: "completed" });
  const count = async (line: string) => (await linesOf(log)).filter((each) => each === line).length;
  await until("the other one waits again", async () => (await count("waits")) > (await count("stopped")));
  expect((await linesOf(log)).filter((line) => line === "one" || line === "woke")).toEqual(["one", "woke"]);
  expect(await again.tasks()).toMatchObject([{ state: "completed" }, { state: "running" }]);
});

test("a job in the pool has a thread of its own, loses it alone, and ends by force when it does not stop", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const job = "pooled";
  const threads = ["one", "two"].map((key) =>
    spawn(session, [["thread"], ["step", key], ["exitFirst", 0]], { job, key }),
  );
  const results = await Promise.all(threads.map(async (task) => (await ended(session, (await task).id)).result));
  expect(results).toMatchObject([
    [expect.any(Number), "one"],
    [expect.any(Number), "two"],
  ]);
  const acts: Act[] = [["step", "once"], ["exitFirst", 1], ["attempt"]];
  const lost = await spawn(session, acts, { job, key: "lost" }, log);
  expect(await ended(session, lost.id)).toMatchObject({ state: "completed", result: ["once", 2] });
  expect(await linesOf(log)).toEqual(["once"]);
  const spins = await spawn(session, [["note", "spins"], ["spin"]], { job, key: "spins" }, log);
  await until("it spins", async () => (await linesOf(log)).includes("spins"));
  expect(await session.cancelTask(spins.id)).toMatchObject({ state: "cancelled" });
});

test("a job asks its host for what a command may, about its own session and those it sees", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  await session.turn("hello");
  const acts: Act[] = [
    ["host", "snapshotCurrent"],
    ["host", "snapshotSession", "nobody's"],
    ["host", "directCompletion", { messages: [{ role: "user", text: "hi" }] }, "job"],
    ["host", "spawnManagedTask", { job: "acts", input: { acts: [] }, key: "inner" }],
    ["host", "listBackgroundTasks"],
    ["host", "listBackgroundTasks", "a"],
    ["host", "spawnManagedTask", { job: "nothing" }],
    ["host", "injectTurnInput", "a", { text: "from the job" }],
  ];
  const task = await spawn(session, acts);
  const { result } = await ended(session, task.id);
  expect(result).toMatchObject([
    { sessionId: "a", turnIndex: 1 },
    { error: "session_not_visible" },
    { text: expect.any(String) },
    { id: "test.works-on:inner" },
    [{ id: task.id }, { id: "test.works-on:inner" }],
    [{ id: task.id }, { id: "test.works-on:inner" }],
    { error: "task_job_unknown" },
    null,
  ]);
  await until("it was said", async () => (await heardBy(session)).at(-1) === "from the job");
});

// §15.75
test("hidden tasks stand in no list, and whoever waits for them hears of the first failure, once", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const hidden = (acts: readonly Act[]) => ["spawnHiddenTask", { job: "acts", input: { acts } }] as const;
  const spawning = ["host", "spawnHiddenTask", { job: "acts", input: { acts: [["sleep", 50]] } }] as const;
  const answers = await ask(
    session,
    hidden([spawning]),
    ["awaitHiddenTasks"],
    hidden([["throw", "acme_no", "not today"]]),
    hidden([]),
    ["awaitHiddenTasks"],
    ["awaitHiddenTasks", "a"],
    ["listBackgroundTasks"],
  );
  expect(answers.map(({ error }) => error)).toEqual([
    undefined,
    undefined,
    undefined,
    undefined,
    "acme_no",
    undefined,
    undefined,
  ]);
  expect(answers.at(-1)).toEqual({ value: [] });
});

// §15.75
test("the owner of a task that is cancelled is told by its job", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("told");
  const [made] = await ask(session, ["registerBackgroundTask", { key: "k", onCancel: "stopped" }]);
  const { id } = valueIn<TaskRecord>(made);
  await session.cancelTask(id);
  await until("it was told", async () => (await heardBy(session)).includes(id));
});

// §15.75
test("a task that is given to another session goes on there", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  await session.turn("hello");
  const child = await session.fork({ id: "b" });
  const task = await spawn(session, [["step", "one"], ["waitNoted"]], { deliver: "turn" }, log);
  await until("it waits", async () => (await linesOf(log)).includes("waits"));
  expect(await ask(session, ["transferAsyncHandles", "b", [task.id]])).toEqual([{ value: undefined }]);
  await until("it waits there", async () => (await linesOf(log)).filter((line) => line === "waits").length === 2);
  expect(await session.tasks()).toEqual([]);
  expect(await child.tasks()).toMatchObject([{ id: task.id, sessionId: "b", state: "running" }]);
  await until("its run of before was told to stop", async () => (await linesOf(log)).includes("stopped"));
  expect((await linesOf(log)).filter((line) => line === "one")).toHaveLength(1);
});

async function turnsWith(troupe: Troupe, deliver?: string): Promise<readonly string[]> {
  const session = await troupe.session(`started/${deliver}`);
  const request = { job: "acts", input: { acts: [["step", "one"]] }, key: "k", label: "Index" };
  const turn = await session.turn(told({ call: "start_work", args: { request, deliver } }, { say: "It goes on." }));
  const [{ output } = {}] = turn.toolCalls;
  expect(output).toMatchObject({
    status: "success",
    value: { task: "test.works-on:k", label: "Index", note: expect.stringContaining("in the background") },
  });
  await ended(session, "test.works-on:k");
  return heardBy(session);
}

test("a tool may answer that its work goes on, and the session is told of the end as the tool says", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  const request = { job: "acts", input: { acts: [["step", "one"]] }, key: "k", label: "Index" };
  const turn = await session.turn(told({ call: "start_work", args: { request, deliver: "turn" } }, { say: "Later." }));
  expect(turn.toolCalls[0]?.output).toMatchObject({
    status: "success",
    value: { task: "test.works-on:k", label: "Index" },
  });
  await until("it had its turn", async () => (await session.info()).turns === 2);
  expect((await heardBy(session))[1]).toBe('The task test.works-on:k (Index) is done. Its result:\n["one"]');
  expect(await turnsWith(troupe, "none")).toHaveLength(1);
  const wrong = await session.turn(told({ call: "hands_out" }, { say: "done" }));
  expect(wrong.toolCalls[0]?.output).toMatchObject({ status: "failure", failure: { code: "task_unknown" } });
});

test("a task of a session that is deleted ends with it", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working({ store: { path: await tempFolder() } }));
  const session = await troupe.session("a");
  await session.turn("hello");
  await spawn(session, [["waitNoted"]], { deliver: "turn" }, log);
  await until("it waits", async () => (await linesOf(log)).length === 1);
  await troupe.deleteSession("a");
  await until("it was told to stop", async () => (await linesOf(log)).includes("stopped"));
  expect(await session.tasks()).toEqual([]);
  expect((await refusalOf(session.turn("still there?"))).code).toBe("session_deleted");
});

test("an imported session's job does not run a second time: its task has failed there, and the session is told so", async () => {
  const log = join(await tempFolder(), "log");
  const troupe = await startTroupe(working({ store: { path: await tempFolder() } }));
  const session = await troupe.session("a");
  await session.turn("hello");
  await spawn(session, [["step", "one"], ["waitNoted"]], { deliver: "turn" }, log);
  await until("it waits", async () => (await linesOf(log)).includes("waits"));
  await troupe.importSession(await troupe.exportSession("a"), { id: "b" });
  const copy = await troupe.session("b");
  await until("it is told", async () => (await copy.info()).turns === 2);
  expect(await copy.tasks()).toMatchObject([{ state: "failed", error: { code: "task_lost" } }]);
  expect(await session.tasks()).toMatchObject([{ state: "running" }]);
  expect(await linesOf(log)).toEqual(["one", "waits"]);
});

test("what a job asks the model is its session's to pay, and refused when that has nothing left", async () => {
  const troupe = await startTroupe(working());
  const session = await troupe.session("a");
  await session.turn("hello");
  const completion: Act = ["host", "directCompletion", { messages: [{ role: "user", text: "hi" }] }, "job"];
  const paid = await spawn(session, [completion], { key: "paid" });
  await ended(session, paid.id);
  const { tokens } = await session.spending();
  await session.setBudget({ maxTokens: 1, whenSpent: "stop" });
  const refused = await spawn(session, [completion], { key: "refused" });
  expect((await ended(session, refused.id)).result).toEqual([{ error: "budget_spent" }]);
  expect((await session.spending()).tokens).toBe(tokens);
  expect(Object.keys(usageReport((await session.view()).ledger).bySource)).toContain("job");
});

test("a step that the store does not take is told of, and the task goes on waiting for the store", async () => {
  const folder = await tempFolder();
  const path = join(folder, "store");
  const { onEvent, first } = listening();
  const troupe = await startTroupe(working({ store: { path }, onEvent }));
  const session = await troupe.session("a");
  const { id } = await spawn(session, [
    ["untilThere", join(folder, "go")],
    ["step", "one"],
  ]);
  await rm(path, { recursive: true });
  await writeFile(join(folder, "go"), "");
  expect(await first("task_failed")).toMatchObject({ session: "a", task: id, error: { code: "store_write_failed" } });
});
