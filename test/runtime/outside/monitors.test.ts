import { expect, test } from "vitest";
import { TroupeError } from "../../../src/kernel/index.js";
import { storedMonitors } from "../../support/stored-monitors.js";
import { storedTasks } from "../../support/stored-tasks.js";

const COMMAND = { id: "m", argv: ["yes"] } as const;
const WAKING = { ...COMMAND, deliver: "turn" } as const;
const diskFull = () => new TroupeError("store_write_failed", "The disk is full.", { retryable: true });
const lost = () => new TroupeError("worker_lost", "The answer was lost.", { retryable: true });

test("of two who take at once exactly one has each update, whichever write is first", async () => {
  const { start, worker, take, settled } = storedMonitors();
  await start(COMMAND);
  worker.say(["a"]);
  await settled();
  const [one, two] = await Promise.all([take(), take()]);
  expect([one.updates.length + two.updates.length, (await take()).updates]).toEqual([1, []]);
});

test("who takes again after a crash has the same updates again, and nobody else has", async () => {
  const { start, worker, take, settled } = storedMonitors();
  await start(COMMAND);
  worker.say(["a"]);
  await settled();
  const first = await take("t1:tool:1");
  worker.say(["b"]);
  await settled();
  expect(first.updates.map(({ text }) => text)).toEqual(["a"]);
  expect(await take("t1:tool:1")).toEqual(first);
  expect((await take("t1:tool:2")).updates.map(({ text }) => text)).toEqual(["b"]);
});

test("what cannot be stored is said and stored later, once, and more is not asked for meanwhile", async () => {
  const { start, worker, take, onChange, events, clock } = storedMonitors();
  await start(COMMAND);
  let full = true;
  onChange(async () => {
    if (full) throw diskFull();
  });
  worker.say(["a"]);
  await clock.elapse(1_000);
  expect(events).toMatchObject([
    {
      type: "monitor_failed",
      session: "s",
      plugin: "p",
      monitor: "m",
      final: false,
      error: { code: "store_write_failed" },
    },
    { type: "monitor_failed", final: false },
    { type: "monitor_failed", final: false },
    { type: "monitor_failed", final: false },
  ]);
  full = false;
  worker.say(["b"]);
  await clock.elapse(5_000);
  expect((await take()).updates.map(({ sequence, text }) => [sequence, text])).toEqual([
    [1, "a"],
    [2, "b"],
  ]);
});

test("an update whose write was made, and its answer lost, is not there twice", async () => {
  const { start, worker, take, onWritten, clock } = storedMonitors();
  await start(COMMAND);
  let writes = 0;
  onWritten(() => {
    if (++writes === 1) throw lost();
  });
  worker.say(["a"]);
  await clock.elapse(5_000);
  worker.say(["b"]);
  await clock.elapse(5_000);
  expect((await take()).updates.map(({ sequence, text }) => [sequence, text])).toEqual([
    [1, "a"],
    [2, "b"],
  ]);
});

test("a session is told of an update once, also when the answer that it has it was lost", async () => {
  const { start, worker, told, onDeliver, clock, row } = storedMonitors();
  await start(WAKING);
  let deliveries = 0;
  onDeliver(async (write) => {
    write();
    if (++deliveries === 1) throw lost();
  });
  worker.say(["a"]);
  await clock.elapse(60_000);
  worker.say(["b"]);
  await clock.elapse(60_000);
  expect(told.map(({ text }) => text)).toEqual(['Monitor "m":\na', 'Monitor "m":\nb']);
  expect(row()).toMatchObject({ sequence: 2, pending: [] });
});

test("while a session has not dealt with an update the next ones gather, and are told as one input", async () => {
  const { start, worker, told, onOutcome, clock } = storedMonitors();
  await start(WAKING);
  let busy = false;
  onOutcome(() => (busy ? "skipped" : "taken"));
  worker.say(["a"]);
  await clock.elapse(1_000);
  busy = true;
  worker.say(["b"]);
  await clock.elapse(1_000);
  worker.say(["c"]);
  await clock.elapse(60_000);
  busy = false;
  await clock.elapse(10_000);
  expect(told.map(({ text }) => text)).toEqual(['Monitor "m":\na', 'Monitor "m":\nb\n\nMonitor "m":\nc']);
  // Nothing is on its way: nothing is looked for.
  expect(clock.timers).toBe(0);
});

test("an update for the running turn is steered into it", async () => {
  const { start, worker, told, clock } = storedMonitors();
  await start({ ...COMMAND, deliver: "steer" });
  worker.say(["a"]);
  await clock.elapse(1_000);
  expect(told).toEqual([{ session: "s", text: 'Monitor "m":\na', steers: true }]);
});

test("a session that was deleted is said, and its monitor ends", async () => {
  const { start, worker, onDeliver, events, clock, snapshot } = storedMonitors();
  await start(WAKING);
  onDeliver(async () => {
    throw new TroupeError("session_deleted", "Session s was deleted.");
  });
  worker.say(["a"]);
  await clock.elapse(1_000);
  expect(events).toMatchObject([{ type: "monitor_failed", final: true, error: { code: "session_deleted" } }]);
  expect(await snapshot()).toMatchObject({ activeCount: 0, monitors: [{ end: { reason: "failed" } }] });
});

test("an update that the session's hooks refuse is passed over and said, and the next one is told", async () => {
  const { start, worker, onDeliver, told, events, clock, snapshot } = storedMonitors();
  await start(WAKING);
  onDeliver(async () => {
    throw new TroupeError("input_refused", "A hook refuses it.");
  });
  worker.say(["a"]);
  await clock.elapse(10_000);
  expect(events).toMatchObject([{ type: "monitor_failed", final: false, error: { code: "input_refused" } }]);
  onDeliver(async (write) => write());
  worker.say(["b"]);
  await clock.elapse(1_000);
  expect(told.map(({ text }) => text)).toEqual(['Monitor "m":\nb']);
  expect((await snapshot()).activeCount).toBe(1);
});

test("when its thread ends it is started again, later and later while that fails, and the next update says so", async () => {
  const { start, worker, take, clock, snapshot } = storedMonitors();
  await start(COMMAND);
  worker.refuse(lost());
  worker.die();
  await clock.elapse(1_000);
  worker.refuse(undefined);
  await clock.elapse(60_000);
  expect(worker.started.length).toBe(2);
  worker.say(["a"]);
  worker.say(["b"]);
  await clock.elapse(1_000);
  expect((await take()).updates.map(({ restarted }) => restarted)).toEqual([true, false]);
  expect(await snapshot()).toMatchObject({ activeCount: 1 });
});

test("one that cannot be started again ends, and its task with it", async () => {
  const { start, worker, clock, snapshot, tasks } = storedMonitors();
  await start(COMMAND);
  worker.refuse(new TroupeError("process_not_started", "It is gone."));
  worker.die();
  await clock.elapse(1_000);
  expect(await snapshot()).toMatchObject({
    monitors: [{ end: { reason: "failed", error: { code: "process_not_started" } } }],
  });
  expect(await tasks.list("s")).toMatchObject([
    { id: "monitor:p/m", state: "failed", error: { code: "process_not_started" } },
  ]);
});

test("stopped while its thread is being replaced it ends, and is not started again", async () => {
  const { start, stop, worker, clock } = storedMonitors();
  await start(COMMAND);
  worker.refuse(lost());
  worker.die();
  await clock.elapse(1_000);
  const stopped = stop("m");
  await clock.elapse(1_000);
  expect(await stopped).toMatchObject({ activeCount: 0, monitors: [{ end: { reason: "stopped" } }] });
  expect(worker.started.length).toBe(1);
  expect(clock.timers).toBe(0);
});

test("a tool is told of when its answer is another one, also over a restart", async () => {
  const first = storedMonitors();
  let text = "1";
  first.onTool(() => ({ status: "answered", text }));
  await first.start({ id: "m", tool: "gauge", everyMs: 1_000, args: {} });
  await first.clock.elapse(2_500);
  text = "2";
  await first.clock.elapse(2_500);
  expect([first.tools.length, first.worker.fed]).toEqual([6, ["1", "2"]]);
  await first.monitors.close();
  const second = storedMonitors(storedTasks({ clock: first.clock, backend: first.backend }));
  second.onTool(() => ({ status: "answered", text }));
  second.monitors.start(true);
  await second.clock.elapse(2_500);
  expect(second.worker.fed).toEqual([]);
  text = "3";
  await second.clock.elapse(2_500);
  expect(second.worker.fed).toEqual(["3"]);
});

test("a tool that is busy is not run twice at once, and a lost worker is no failure of it", async () => {
  const { start, onTool, tools, clock, snapshot } = storedMonitors();
  onTool(() => Promise.reject(lost()));
  await start({ id: "m", tool: "gauge", everyMs: 100, args: {} });
  await clock.elapse(2_050);
  expect(tools.length).toBeGreaterThan(5);
  expect((await snapshot()).activeCount).toBe(1);
  onTool(() => new Promise(() => undefined));
  await clock.elapse(200);
  const before = tools.length;
  await clock.elapse(60_000);
  expect(tools.length).toBe(before);
});

test("a task that the store has going on, of a monitor that ended or is gone, ends at the next start", async () => {
  const first = storedMonitors();
  await first.tasks.register("s", null, { kind: "monitor", id: "monitor:p/gone", label: "gone" });
  const second = storedMonitors(storedTasks({ clock: first.clock, backend: first.backend }));
  second.tasks.start({ tasks: true, firstTaskWake: null });
  await second.clock.elapse(100);
  expect(await second.tasks.list("s")).toMatchObject([{ id: "monitor:p/gone", state: "cancelled" }]);
});

test("a monitor whose task was cancelled by a process that was killed then is ended by the next one, and not started again", async () => {
  const first = storedMonitors();
  await first.start({ id: "log", argv: ["app"] });
  await first.tasks.register("s", null, { kind: "monitor", id: "monitor:p/log", label: "log" });
  first.tasks.setKind("monitor", { cancel: () => new Promise(() => {}) });
  void first.tasks.cancel("s", "monitor:p/log");
  await first.settled();
  expect(first.row()).toMatchObject({ end: null });
  const second = storedMonitors(storedTasks({ clock: first.clock, backend: first.backend }));
  second.monitors.start(true);
  second.tasks.start({ tasks: true, firstTaskWake: null });
  await second.clock.elapse(100);
  expect(second.worker.started).toEqual([]);
  expect(second.row()).toMatchObject({ end: { reason: "stopped" }, starts: 1 });
  expect(await second.tasks.list("s")).toMatchObject([{ id: "monitor:p/log", state: "cancelled" }]);
});

test("a monitor whose process was killed before it stood in its session's list of tasks does so in the next one, and goes on", async () => {
  const first = storedMonitors();
  await first.start({ id: "log", argv: ["app"] });
  await first.tasks.unregister("s", null, "monitor:p/log");
  const second = storedMonitors(storedTasks({ clock: first.clock, backend: first.backend }));
  second.monitors.start(true);
  await second.clock.elapse(100);
  expect(second.worker.started).toHaveLength(1);
  expect(await second.tasks.list("s")).toMatchObject([{ id: "monitor:p/log", kind: "monitor", state: "running" }]);
});
