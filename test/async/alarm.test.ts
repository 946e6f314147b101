import { expect, test } from "vitest";
import { Alarm } from "../../src/async/index.js";
import { ManualClock } from "../support/manual-clock.js";

const settled = async () => {
  for (let n = 0; n < 10; n++) await Promise.resolve();
};

/** An alarm, and the times at which it looked. */
function alarmWith(look: (now: number) => number | null | Promise<number | null>) {
  const clock = new ManualClock({ wallNow: 0 });
  const looked: number[] = [];
  const alarm = new Alarm({
    clock,
    longestMs: 1_000,
    look: async () => {
      looked.push(clock.wallNow());
      return look(clock.wallNow());
    },
  });
  return { alarm, clock, looked };
}

test("an alarm looks at the earliest time it was told, and has no timer when there is nothing to look for", async () => {
  const { alarm, clock, looked } = alarmWith(() => null);
  expect(clock.timers).toBe(0);
  alarm.by(300);
  alarm.by(100);
  alarm.by(200);
  expect(clock.timers).toBe(1);
  clock.advance(100);
  await settled();
  expect(looked).toEqual([100]);
  expect(clock.timers).toBe(0);
});

test("an alarm looks again when its look says so, and for a time that comes while it looks", async () => {
  let goOn: (next: number | null) => void = () => {};
  const { alarm, clock, looked } = alarmWith(
    () =>
      new Promise((resolve) => {
        goOn = resolve;
      }),
  );
  alarm.by(100);
  clock.advance(100);
  await settled();
  alarm.by(150);
  expect(clock.timers).toBe(0);
  goOn(400);
  await settled();
  clock.advance(50);
  await settled();
  goOn(400);
  await settled();
  clock.advance(250);
  expect(looked).toEqual([100, 150, 400]);
});

test("an alarm for a far time looks at the clock in between, and one that is closed looks no more", async () => {
  const { alarm, clock, looked } = alarmWith((now) => (now < 2_500 ? 2_500 : null));
  alarm.by(2_500);
  for (let n = 0; n < 3; n++) {
    clock.advance(1_000);
    await settled();
  }
  expect(looked).toEqual([1_000, 2_000, 2_500]);
  alarm.by(4_000);
  await alarm.close();
  clock.advance(5_000);
  expect(clock.timers).toBe(0);
  expect(looked).toHaveLength(3);
});
