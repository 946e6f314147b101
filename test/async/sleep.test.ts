import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { deferred, loopTurn, sleep, within } from "../../src/async/index.js";
import { ManualClock } from "../support/manual-clock.js";

test("a sleep ends when its time is over, and lets go of its signal", async () => {
  const clock = new ManualClock();
  const { signal } = new AbortController();
  let awake = false;
  const sleeping = sleep(clock, 100, { signal }).then(() => {
    awake = true;
  });
  await clock.elapse(99);
  expect(awake).toBe(false);
  await clock.elapse(1);
  await sleeping;
  expect(getEventListeners(signal, "abort")).toHaveLength(0);
});

test("an abort ends a sleep with the signal's reason and leaves no timer", async () => {
  const clock = new ManualClock();
  const controller = new AbortController();
  const sleeping = sleep(clock, 100, { signal: controller.signal });
  controller.abort(new Error("up"));
  await expect(sleeping).rejects.toThrow("up");
  expect(clock.timers).toBe(0);
});

test("loopTurn resolves in the next turn of the event loop", async () => {
  const clock = new ManualClock();
  let turned = false;
  void loopTurn(clock).then(() => {
    turned = true;
  });
  expect(turned).toBe(false);
  await clock.turn();
  expect(turned).toBe(true);
});

test("within waits for a promise as long as its time allows, and leaves no timer", async () => {
  const clock = new ManualClock();
  await within(clock, 100, Promise.reject(new Error("for others")));
  expect(clock.timers).toBe(0);
  const late = within(clock, 100, deferred().promise);
  await clock.elapse(100);
  await late;
  expect(clock.timers).toBe(0);
});
