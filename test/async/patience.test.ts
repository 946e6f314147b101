import { expect, test } from "vitest";
import { persist } from "../../src/async/index.js";
import { ManualClock } from "../support/manual-clock.js";

test("persist attempts again after growing pauses until it works", async () => {
  const clock = new ManualClock();
  const at: number[] = [];
  const done = persist(
    async () => {
      at.push(clock.now());
      if (at.length < 3) throw new Error("not yet");
      return "done";
    },
    { clock, attempts: 5, pauseMs: (attempt) => 50 * attempt },
  );
  await clock.elapse(1_000);
  expect(await done).toBe("done");
  expect(at).toEqual([50, 150, 300]);
});

test("persist throws the error of its last attempt", async () => {
  const clock = new ManualClock();
  let attempts = 0;
  const done = persist(() => Promise.reject(new Error(`failed ${++attempts}`)), {
    clock,
    attempts: 2,
    pauseMs: () => 10,
  });
  const failed = expect(done).rejects.toThrow("failed 2");
  await clock.elapse(100);
  await failed;
});

test("an abort ends the pause of persist, and nothing is attempted any more", async () => {
  const clock = new ManualClock();
  const controller = new AbortController();
  const done = persist(() => expect.unreachable(), {
    clock,
    attempts: 2,
    pauseMs: () => 10,
    signal: controller.signal,
  });
  controller.abort(new Error("closed"));
  await expect(done).rejects.toThrow("closed");
  expect(clock.timers).toBe(0);
});
