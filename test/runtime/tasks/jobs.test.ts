import { definePlugin, type Job } from "troupe/plugin";
import { expect, test } from "vitest";
import { stepKey, TASK_STEPS, TroupeError } from "../../../src/kernel/index.js";
import { openMemory } from "../../../src/store/index.js";
import { decode, encode } from "../../../src/wire/index.js";
import { jobsHere } from "../../support/jobs-here.js";
import { ManualClock } from "../../support/manual-clock.js";
import { storedTasks } from "../../support/stored-tasks.js";

const ANY = { type: "object" } as const;
/** A plugin with one job that does this. */
const plugin = (run: Job["run"]) => definePlugin({ id: "p", version: "1.0.0", jobs: { work: { input: ANY, run } } });
const request = { job: "work", input: {}, key: "k" };

/** Turns of the event loop, in which a lane's messages and the store's answers come. */
const turns = async (count = 20) => {
  for (let n = 0; n < count; n++) await new Promise(setImmediate);
};

test("a step that cannot be stored is tried again until it is, and is done once", async () => {
  const done: string[] = [];
  const { jobsOf } = await jobsHere(plugin((_, { step }) => step("one", () => void done.push("one"))));
  const { tasks, clock, events, onChange } = storedTasks({ jobsOf });
  await tasks.spawn("a", "p", "managed", request);
  let refusals = 3;
  onChange(async () => {
    if (refusals-- > 0) throw new TroupeError("store_write_failed", "The disk is full.");
  });
  for (let n = 0; n < 5; n++) {
    await turns();
    clock.advance(1_000);
  }
  await turns();
  expect(await tasks.list("a")).toMatchObject([{ state: "completed" }]);
  expect(done).toEqual(["one"]);
  expect(events.map(({ type }) => type)).toEqual(["task_failed", "task_failed", "task_failed"]);
});

test("a result that cannot be stored is tried again until it is, and its job is not run again", async () => {
  let runs = 0;
  const { jobsOf } = await jobsHere(plugin(() => ++runs));
  const { tasks, clock, events, onChange } = storedTasks({ jobsOf });
  await tasks.spawn("a", "p", "managed", request);
  let refusals = 2;
  onChange(async () => {
    if (refusals-- > 0) throw new TroupeError("store_write_failed", "The disk is full.");
  });
  for (let n = 0; n < 4; n++) {
    await turns();
    clock.advance(1_000);
  }
  await turns();
  expect(await tasks.list("a")).toMatchObject([{ state: "completed", result: 1 }]);
  expect(events).toHaveLength(2);
});

test("what a run that was lost still says of its steps counts for nothing", async () => {
  const said: unknown[] = [];
  let hold: () => void = () => {};
  const { jobsOf, lose } = await jobsHere(
    plugin(async (_, { attempt, step }) => {
      if (attempt > 1) return step("one", () => "of the second");
      await new Promise<void>((resolve) => {
        hold = resolve;
      });
      return step("one", () => "of the first").catch(({ code }: TroupeError) => said.push(code));
    }),
  );
  const { tasks, clock } = storedTasks({ jobsOf });
  await tasks.spawn("a", "p", "managed", request);
  await turns();
  lose();
  await turns();
  clock.advance(10_000);
  await turns();
  hold();
  await turns();
  expect(await tasks.list("a")).toMatchObject([{ state: "completed", result: "of the second" }]);
  expect(said).toEqual(["worker_lost"]);
});

test("a job that comes to another step than the one that is stored fails as task_changed", async () => {
  const { jobsOf, lose } = await jobsHere(
    plugin(async (_, { attempt, step }) => {
      await step(`step of run ${attempt}`, () => null);
      await new Promise(() => {});
    }),
  );
  const { tasks, clock } = storedTasks({ jobsOf });
  await tasks.spawn("a", "p", "managed", request);
  await turns();
  lose();
  await turns();
  clock.advance(10_000);
  await turns();
  expect(await tasks.list("a")).toMatchObject([{ state: "failed", error: { code: "task_changed" } }]);
});

test("a task that sleeps has no timer but the one for the earliest of all, and the next runtime wakes it", async () => {
  const backend = openMemory({ clock: new ManualClock() });
  const clock = new ManualClock();
  const definition = plugin(async (input, { sleep, attempt }) => {
    await sleep((input as { at: number }).at);
    return attempt;
  });
  const first = storedTasks({ clock, backend, ...(await jobsHere(definition)) });
  const at = clock.wallNow() + 60_000;
  for (let n = 0; n < 20; n++)
    await first.tasks.spawn("a", "p", "managed", { job: "work", key: `k${n}`, input: { at: at + n } });
  await turns(60);
  expect((await first.tasks.list("a")).map(({ state }) => state)).toEqual(Array(20).fill("idle"));
  expect(clock.timers).toBe(1);
  await first.tasks.close();
  expect(clock.timers).toBe(0);
  clock.advance(30_000);
  const next = storedTasks({ clock, backend, ...(await jobsHere(definition)) });
  next.tasks.start({ tasks: false, firstTaskWake: at });
  clock.advance(30_000);
  for (let n = 0; n < 5; n++) {
    await turns();
    clock.advance(1);
  }
  await turns();
  const woken = (await next.tasks.list("a")).filter(({ state }) => state === "completed");
  expect(woken.map(({ key, result }) => [key, result])).toEqual([0, 1, 2, 3, 4, 5].map((n) => [`k${n}`, 2]));
});

test("a job of a plugin that is gone fails its task when that is taken up, and says which it has", async () => {
  const clock = new ManualClock();
  const backend = openMemory({ clock });
  const first = storedTasks({ clock, backend, ...(await jobsHere(plugin(() => new Promise(() => {})))) });
  await first.tasks.spawn("a", "p", "managed", request);
  await turns();
  const other = definePlugin({ id: "p", version: "2.0.0", jobs: { other: { input: ANY, run: () => null } } });
  const next = storedTasks({ clock, backend, ...(await jobsHere(other)) });
  next.tasks.start({ tasks: true, firstTaskWake: null });
  await turns();
  expect(await next.tasks.list("a")).toMatchObject([
    { state: "failed", error: { code: "task_job_unknown", message: expect.stringContaining("It has: other.") } },
  ]);
});

test("a runtime that closes waits for no job, and a run that it ended is no loss", async () => {
  const clock = new ManualClock();
  const backend = openMemory({ clock });
  for (let n = 0; n < 8; n++) {
    const here = await jobsHere(plugin(() => new Promise(() => {})));
    const { tasks } = storedTasks({ clock, backend, ...here });
    if (n === 0) await tasks.spawn("a", "p", "managed", request);
    else tasks.start({ tasks: true, firstTaskWake: null });
    await turns();
    expect(await tasks.list("a")).toMatchObject([{ state: "running" }]);
    await tasks.close();
  }
});

test.each([
  ["its input", 0],
  ["a step that was finished", 1],
])("a task that lost %s, as a repaired store may, fails and does nothing again", async (_, nth) => {
  const clock = new ManualClock();
  const backend = openMemory({ clock });
  const done: string[] = [];
  const definition = plugin(async (_input, { step }) => {
    await step("one", () => void done.push("one"));
    await new Promise(() => {});
  });
  const first = storedTasks({ clock, backend, ...(await jobsHere(definition)) });
  await first.tasks.spawn("a", "p", "managed", request);
  await turns();
  await first.tasks.close();
  backend.write([
    { kind: "rows", changes: [{ table: TASK_STEPS, session: "a", key: stepKey("p:k", nth), value: null }] },
  ]);
  const next = storedTasks({ clock, backend, ...(await jobsHere(definition)) });
  next.tasks.start({ tasks: true, firstTaskWake: null });
  await turns();
  expect(await next.tasks.list("a")).toMatchObject([{ state: "failed", error: { code: "task_lost" } }]);
  expect(done).toEqual(["one"]);
});

test("a run whose task was taken up by another process meanwhile neither finishes a step nor ends it", async () => {
  const clock = new ManualClock();
  const backend = openMemory({ clock });
  const said: unknown[] = [];
  let goOn: () => void = () => {};
  const here = await jobsHere(
    plugin(async (_, { step }) => {
      await step("one", () => null);
      await new Promise<void>((resolve) => {
        goOn = resolve;
      });
      await step("two", () => null).catch(({ code }: TroupeError) => said.push(code));
      return "of the first";
    }),
  );
  const { tasks, rows } = storedTasks({ clock, backend, ...here });
  await tasks.spawn("a", "p", "managed", request);
  await turns();
  const [row] = rows("a");
  const { order, value, ...name } = row as NonNullable<typeof row>;
  const taken = encode({ ...decode<object>(value), run: 2 });
  const { version: _, ...place } = name;
  backend.write([{ kind: "rows", changes: [{ ...place, value: taken, ...(order && { order }) }] }]);
  goOn();
  await turns();
  expect(said).toEqual(["task_over"]);
  expect(await tasks.list("a")).toMatchObject([{ state: "running", result: null }]);
});
