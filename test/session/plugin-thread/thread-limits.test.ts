import { expect, test } from "vitest";
import { ThreadLimits } from "../../../src/session/plugin-thread/thread-limits.js";
import { endedBy, newStage } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

const MB = 1024 * 1024;

function limited() {
  const clock = new ManualClock();
  clock.advance(1_000);
  const stage = newStage();
  const thread = { mb: 0, garbageMb: 0, ended: 0 };
  const measures = {
    external: () => (thread.mb + thread.garbageMb) * MB,
    resources: () => 0,
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

test("a call that leaves only garbage behind does not end its thread", () => {
  const { limits, thread } = limited();
  limits.enter();
  thread.garbageMb = 100;
  limits.leave();
  limits.look();
  expect(thread.ended).toBe(0);
});
