import { expect, test } from "vitest";
import { ThreadLimits } from "../../../src/session/plugin-thread/thread-limits.js";
import { endedBy, newStage } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

const MB = 1024 * 1024;

function limited() {
  const clock = new ManualClock();
  clock.advance(1_000);
  const stage = newStage();
  const thread = { mb: 0, garbageMb: 0, timers: 0, ended: 0 };
  const measures = {
    external: () => (thread.mb + thread.garbageMb) * MB,
    resources: () => thread.timers,
    collect() {
      thread.garbageMb = 0;
    },
    end() {
      thread.ended++;
    },
  };
  const limits = new ThreadLimits(clock, measures, { stage, externalMb: 64 });
  return { clock, limits, thread, reason: () => endedBy(stage) };
}

test("a call that comes behind what a timer hoarded has its answer before its thread ends", async () => {
  const { clock, limits, thread, reason } = limited();
  thread.mb = 100;
  limits.enter();
  limits.leave();
  expect(thread.ended).toBe(0);
  await clock.turn();
  expect([thread.ended, reason()]).toEqual([1, "external"]);
});

test("a call that hoards buffers ends its thread while it holds it, also right behind another look", () => {
  const { limits, thread, reason } = limited();
  limits.look();
  limits.enter();
  thread.mb = 100;
  limits.leave();
  expect([thread.ended, reason()]).toEqual([1, "external"]);
});

test("a look that the main thread asks for finds timers, and leaves it to the call that sets them to be known by its own", async () => {
  const { limits, thread, reason } = limited();
  limits.asked();
  thread.timers = 20_000;
  limits.look();
  expect([thread.ended, reason()]).toEqual([1, "resources"]);

  const later = limited();
  later.limits.look();
  later.thread.timers = 20_000;
  later.limits.asked();
  expect(later.thread.ended).toBe(0);
  await later.clock.turn();
  expect([later.thread.ended, later.reason()]).toEqual([1, "resources"]);
});

test("a call that leaves only garbage behind does not end its thread", () => {
  const { limits, thread } = limited();
  limits.enter();
  thread.garbageMb = 100;
  limits.leave();
  limits.look();
  expect(thread.ended).toBe(0);
});

test("a hook that hoards buffers is blamed before its thread ends, when no other was looked at with it", () => {
  const { limits, thread, reason } = limited();
  const blamed: number[] = [];
  limits.begin();
  thread.mb = 100;
  limits.rested(() => blamed.push(thread.ended));
  expect([blamed, thread.ended, reason()]).toEqual([[0], 1, "external"]);
});

test("of two hooks that were looked at together nobody is blamed, and none of their answers has left", () => {
  const { limits, thread, reason } = limited();
  const blamed: number[] = [];
  limits.begin();
  thread.mb = 100;
  limits.begin();
  limits.rested(() => blamed.push(thread.ended));
  expect([blamed, thread.ended, reason()]).toEqual([[], 1, "external"]);
});

test("hooks that come behind what a timer hoarded have their answers before their thread ends", async () => {
  const { clock, limits, thread, reason } = limited();
  const blamed: number[] = [];
  thread.mb = 100;
  limits.begin();
  limits.begin();
  limits.rested(() => blamed.push(thread.ended));
  expect([blamed, thread.ended]).toEqual([[], 0]);
  await clock.turn();
  expect([thread.ended, reason()]).toEqual([1, "external"]);
});
