import { expect, test } from "vitest";
import { JoinedEvents, type TroupeEvent } from "../../src/trace/index.js";
import { ManualClock } from "../support/manual-clock.js";

const hookFailed = (over: object = {}): TroupeEvent => ({
  type: "hook_failed",
  at: 0,
  count: 1,
  session: "s",
  plugin: "acme.guard",
  hook: "beforeTurn",
  timeout: false,
  outcome: "default",
  error: { name: "Error", message: "no", code: "hook_failed" },
  ...over,
});
const restarted: TroupeEvent = {
  type: "plugin_restarted",
  at: 0,
  count: 1,
  plugin: "acme.guard",
  thread: "host",
  restarts: 1,
};

function joining() {
  const clock = new ManualClock();
  const told: TroupeEvent[] = [];
  return { clock, told, joined: new JoinedEvents(clock, (event) => told.push(event)) };
}

test("a plugin that fails 10,000 times a second is one line a second with a count", () => {
  const { clock, told, joined } = joining();
  for (let ms = 0; ms < 5_000; ms++) {
    for (let n = 0; n < 10; n++) joined.add(hookFailed({ session: `s${n}` }));
    clock.advance(1);
  }
  expect(told.map(({ count }) => count)).toEqual([1, 9_999, 10_000, 10_000, 10_000, 10_000]);
});

test("what fails once is told at once, and no timer is left behind it", () => {
  const { clock, told, joined } = joining();
  joined.add(hookFailed());
  expect([told.length, clock.timers]).toEqual([1, 1]);
  clock.advance(1_000);
  expect([told.length, clock.timers]).toEqual([1, 0]);
});

test("different hooks, plugins and codes are told apart", () => {
  const { told, joined } = joining();
  joined.add(hookFailed());
  joined.add(hookFailed({ hook: "afterTurn" }));
  joined.add(hookFailed({ plugin: "acme.other" }));
  joined.add(hookFailed({ error: { name: "Error", message: "late", code: "hook_timeout" } }));
  expect(told).toHaveLength(4);
});

test("a restart is told each time, however often", () => {
  const { clock, told, joined } = joining();
  for (let n = 0; n < 100; n++) joined.add(restarted);
  expect([told.length, clock.made]).toEqual([100, 0]);
});

test("turns of ten thousand sessions that are refused at once are told apart as far as memory is bounded, and all are counted", () => {
  const { told, joined } = joining();
  for (let n = 0; n < 10_000; n++) {
    const error = { name: "TroupeError", message: "full", code: "mailbox_full" };
    joined.add({
      type: "turn_refused",
      at: 0,
      count: 1,
      session: `s${n}`,
      code: "mailbox_full",
      background: true,
      error,
    });
  }
  joined.flush();
  expect(told.length).toBeLessThanOrEqual(300);
  expect(told.reduce((sum, { count }) => sum + count, 0)).toBe(10_000);
});

test("what waits to be joined is told at the end", () => {
  const { clock, told, joined } = joining();
  for (let n = 0; n < 3; n++) joined.add(hookFailed());
  joined.flush();
  expect(told.map(({ count }) => count)).toEqual([1, 2]);
  expect(clock.timers).toBe(0);
});
