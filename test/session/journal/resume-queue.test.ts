import { expect, test } from "vitest";
import { type Passed, Suspects, Trial } from "../../../src/session/journal/trial.js";
import { ManualClock } from "../../support/manual-clock.js";

const never = () => new AbortController().signal;

/** A trial, and how it went. */
function trial() {
  const clock = new ManualClock();
  const notes: Passed[] = [];
  let past = 0;
  const running = new Trial({
    clock,
    note: async (passed) => notes.push(passed),
    past: () => past++,
  });
  return { clock, running, notes, past: () => past };
}

test("a suspect's trial is over after two seconds, and that it lasted is noted before the next begins", async () => {
  const { clock, notes, past } = trial();
  clock.advance(1_999);
  expect(notes).toEqual([]);
  clock.advance(1);
  expect([notes, past()]).toEqual([["lasted"], 0]);
  await clock.turn();
  expect(past()).toBe(1);
});

test("a suspect that waits for somebody has passed its trial, once", async () => {
  const { clock, running, notes, past } = trial();
  running.end("waits");
  running.end();
  await clock.elapse(10_000);
  expect([notes, past(), clock.timers]).toEqual([["waits"], 1, 0]);
});

test("a suspect that ends has nothing noted, and the next begins at once", () => {
  const { clock, running, notes, past } = trial();
  running.end();
  clock.advance(10_000);
  expect([notes, past(), clock.timers]).toEqual([[], 1, 0]);
});

test("suspects are alone one after another, and one that is cancelled does not let the next in early", async () => {
  const suspects = new Suspects();
  const clock = new ManualClock();
  const order: string[] = [];
  const first = await suspects.alone(never());
  const gone = new AbortController();
  const second = suspects.alone(gone.signal).then(() => order.push("second gone"));
  const third = suspects.alone(never()).then(() => order.push("third"));
  gone.abort();
  await second;
  await clock.turn();
  expect(order).toEqual(["second gone"]);
  first();
  await third;
  expect(order).toEqual(["second gone", "third"]);
});
