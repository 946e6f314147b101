import { expect, test } from "vitest";
import { TroupeError } from "../../../src/kernel/index.js";
import { Asked, UnexplainedDeaths } from "../../../src/runtime/watch/unexplained-deaths.js";
import { ManualClock } from "../../support/manual-clock.js";

const LOST = new TroupeError("worker_lost", "Session worker 1 ended by its own exit, with code 7.", {
  details: { reason: "exit" },
});

test("a session worker whose thread dies a fourth time within five seconds is given up, and the error names the last cause", () => {
  const clock = new ManualClock();
  const deaths = new UnexplainedDeaths(clock, "Session worker 1");
  for (let death = 1; death <= 3; death++) {
    expect(deaths.add(LOST)).toBeUndefined();
    clock.advance(1_666);
  }
  expect(deaths.add(LOST)).toMatchObject({
    code: "session_worker_given_up",
    retryable: false,
    message: expect.stringMatching(/^Session worker 1 was given up: .*own exit, with code 7.*create another one\.$/),
    details: { reason: "exit", deaths: 4, windowMs: 5_000 },
    cause: LOST,
  });
});

test("a session worker whose fourth death comes five seconds after the first is not given up", () => {
  const clock = new ManualClock();
  const deaths = new UnexplainedDeaths(clock, "Session worker 1");
  deaths.add(LOST);
  clock.advance(4_000);
  expect([deaths.add(LOST), deaths.add(LOST)]).toEqual([undefined, undefined]);
  clock.advance(1_000);
  expect(deaths.add(LOST)).toBeUndefined();
});

test("a session worker whose thread dies every two seconds, fifty times, is never given up", () => {
  const clock = new ManualClock();
  const deaths = new UnexplainedDeaths(clock, "Session worker 1");
  const given = Array.from({ length: 50 }, () => {
    clock.advance(2_000);
    return deaths.add(LOST);
  });
  expect(given).toEqual(Array.from({ length: 50 }, () => undefined));
});

test("a call explains a thread's death until it is answered or refused, and for good when it is lost with the thread", async () => {
  const asked = new Asked();
  const answered = asked.during(Promise.resolve(1));
  const refused = asked.during(Promise.reject(new TroupeError("tenant_mismatch", "It is another tenant's.")));
  expect(asked.any).toBe(true);
  await Promise.allSettled([answered, refused]);
  expect(asked.any).toBe(false);
  await expect(asked.during(Promise.reject(LOST))).rejects.toBe(LOST);
  expect(asked.any).toBe(true);
});
