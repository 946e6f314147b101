import { expect, test } from "vitest";
import { WorkerEvents } from "../../../src/session/worker/worker-events.js";
import type { ToldEvent, TroupeEvent } from "../../../src/trace/index.js";
import { ManualClock } from "../../support/manual-clock.js";

const failed: ToldEvent = {
  type: "hook_failed",
  session: "s",
  plugin: "acme.guard",
  hook: "beforeTurn",
  timeout: false,
  outcome: "default",
  error: { name: "Error", message: "no", code: "hook_failed" },
};

test("a hook that fails 10,000 times in a second is two notes from its session worker to the main thread", () => {
  const clock = new ManualClock();
  const told: TroupeEvent[] = [];
  const events = new WorkerEvents({ clock, content: false, sessionOf: () => undefined, tell: (e) => told.push(e) });
  for (let n = 0; n < 10_000; n++) events.emit(failed);
  expect(told.map(({ count }) => count)).toEqual([1]);
  clock.advance(1_000);
  expect(told.map(({ count }) => count)).toEqual([1, 9_999]);
});

test("what waits to be joined on a session worker is told when it closes", () => {
  const told: TroupeEvent[] = [];
  const events = new WorkerEvents({
    clock: new ManualClock(),
    content: false,
    sessionOf: () => undefined,
    tell: (event) => told.push(event),
  });
  for (let n = 0; n < 3; n++) events.emit(failed);
  events.flush();
  expect(told.map(({ count }) => count)).toEqual([1, 2]);
});
