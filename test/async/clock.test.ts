import { expect, test } from "vitest";
import { systemClock } from "../../src/async/index.js";
import { ManualClock } from "../support/manual-clock.js";

test("the system clock runs nextTick before soon, and soon once its turn comes", async () => {
  const log: string[] = [];
  await new Promise<void>((resolve) => {
    systemClock.soon(() => {
      log.push("soon");
      resolve();
    });
    systemClock.nextTick(() => log.push("nextTick"));
  });
  expect(log).toEqual(["nextTick", "soon"]);
});

test("a timer of the system clock that was cancelled does not run", async () => {
  const cancelled = [
    systemClock.timeout(1, () => expect.unreachable()),
    systemClock.interval(1, () => expect.unreachable()).unref(),
    systemClock.soon(() => expect.unreachable()),
  ];
  for (const timer of cancelled) timer.cancel();
  await new Promise<void>((resolve) => systemClock.timeout(5, resolve));
});

test("the system clock gives ids and bytes that differ, and a number below 1", () => {
  expect(systemClock.uuid()).not.toBe(systemClock.uuid());
  expect(systemClock.randomBytes(6)).toHaveLength(6);
  expect(systemClock.random()).toBeLessThan(1);
});

test("a manual clock runs timers in the order of their time, intervals again and again", async () => {
  const clock = new ManualClock({ wallNow: 1_000 });
  const log: string[] = [];
  clock.timeout(30, () => log.push(`timeout at ${clock.now()}`));
  const interval = clock.interval(20, () => log.push(`interval at ${clock.now()}`));
  await clock.elapse(45);
  interval.cancel();
  await clock.elapse(100);
  expect(log).toEqual(["interval at 20", "timeout at 30", "interval at 40"]);
  expect(clock.now()).toBe(145);
  expect(clock.wallNow()).toBe(1_145);
});
