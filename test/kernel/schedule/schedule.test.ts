import { expect, test } from "vitest";
import {
  beginSchedule,
  type DueSchedule,
  dueSchedule,
  extraRun,
  pauseSchedule,
  resumeSchedule,
  SCHEDULE_GRACE_MS,
  type StoredSchedule,
} from "../../../src/kernel/schedule/schedule.js";
import {
  checkSchedule,
  checkScheduleKey,
  type ScheduleRequest,
} from "../../../src/kernel/schedule/schedule-request.js";

const START = Date.UTC(2030, 0, 1);
const at = (now: number, chance = 0) => ({ now, chance, cron: () => null });
const begin = (request: Partial<ScheduleRequest>, now = START, chance = 0) =>
  beginSchedule(checkSchedule({ session: "s", input: "hi", ...request }), at(now, chance));

/** The schedule behind the run it is due for. */
function ran(stored: StoredSchedule, now: number): StoredSchedule {
  const due = dueSchedule(stored, at(now));
  if (due.kind !== "run") throw new Error(`It is not due at ${now}, but ${due.kind}.`);
  return due.after({ outcome: "ran" });
}

test("a schedule of every so often counts from when it was asked for, however late its runs were", () => {
  let stored = begin({ everyMs: 10_000 });
  expect(stored.next).toBe(START + 10_000);
  stored = ran(stored, START + 10_700);
  expect([stored.next, stored.runs, stored.last]).toEqual([
    START + 20_000,
    1,
    { due: START + 10_000, at: START + 10_700, outcome: "ran" },
  ]);
  expect(dueSchedule(stored, at(START + 19_999)).kind).toBe("wait");
});

test("of runs that were missed while nothing ran one is made, and the next is behind now", () => {
  const stored = ran(begin({ everyMs: 10_000 }), START + 3_600_123);
  expect([stored.runs, stored.next]).toEqual([1, START + 3_610_000]);
});

test("with misfire skip a run that is late by more than a minute is left out, and one that is not is made", () => {
  const stored = begin({ everyMs: 600_000, misfire: "skip" });
  expect(dueSchedule(stored, at(START + 600_000 + SCHEDULE_GRACE_MS)).kind).toBe("run");
  const missed = dueSchedule(stored, at(START + 600_001 + SCHEDULE_GRACE_MS)) as Extract<
    DueSchedule,
    { kind: "missed" }
  >;
  expect(missed.kind).toBe("missed");
  expect([missed.after.runs, missed.after.next, missed.after.last?.outcome]).toEqual([0, START + 1_200_000, "missed"]);
});

test("a moment in the past is now, once; with misfire skip it is not at all", () => {
  const past = begin({ at: START - 86_400_000 });
  const stored = ran(past, START);
  expect([stored.state, stored.next, stored.runs]).toEqual(["ended", null, 1]);
  expect(dueSchedule(stored, at(START + 1e9)).kind).toBe("wait");
  const skipped = dueSchedule(begin({ at: START - 86_400_000, misfire: "skip" }), at(START));
  expect(skipped).toMatchObject({ kind: "missed", after: { state: "ended", runs: 0, next: null } });
});

test("a schedule ends with its last run and behind its until", () => {
  expect(ran(ran(begin({ everyMs: 1_000, maxRuns: 2 }), START + 1_000), START + 2_000).state).toBe("ended");
  expect(ran(begin({ everyMs: 1_000, until: START + 1_500 }), START + 1_000).state).toBe("ended");
  expect(ran(begin({ everyMs: 1_000, until: START + 2_000 }), START + 1_000)).toMatchObject({ state: "active" });
});

test("each run is later by its own share of the jitter, and the times themselves do not drift", () => {
  let stored = begin({ everyMs: 60_000, jitterMs: 10_000 }, START, 0.5);
  expect([stored.next, stored.wake]).toEqual([START + 60_000, START + 65_000]);
  expect(dueSchedule(stored, at(START + 64_999)).kind).toBe("wait");
  stored = ran(stored, START + 65_000);
  expect(stored.next).toBe(START + 120_000);
});

test("a paused schedule is never due, and goes on with its first time behind now", () => {
  const paused = pauseSchedule(begin({ everyMs: 10_000 }));
  expect(dueSchedule(paused, at(START + 1e9)).kind).toBe("wait");
  expect(resumeSchedule(paused, at(START + 25_000))).toMatchObject({ state: "active", next: START + 30_000 });
  // One that is to run once, and did not, still has its run.
  expect(resumeSchedule(pauseSchedule(begin({ at: START + 5 })), at(START + 99))).toMatchObject({ next: START + 5 });
});

test("a run beside its times leaves the next one where it is, and counts", () => {
  const stored = begin({ everyMs: 10_000, maxRuns: 2 });
  const once = extraRun(stored, { now: START + 5 }).after({ outcome: "ran" });
  expect([once.runs, once.next, once.state]).toEqual([1, START + 10_000, "active"]);
  expect(extraRun(once, { now: START + 6 }).after({ outcome: "ran" })).toMatchObject({ state: "ended", next: null });
});

const good = { session: "s", everyMs: 60_000, input: "hi" };
test.each<[string, unknown, string]>([
  ["nothing", undefined, "it is an object such as { session, cron, input }"],
  ["no time", { session: "s", input: "hi" }, "it has one of cron, at and everyMs, not none"],
  ["two times", { ...good, at: 1 }, "it has one of cron, at and everyMs, not 2"],
  ["no session", { everyMs: 60_000, input: "hi" }, "it has either session or newSession"],
  ["both sessions", { ...good, newSession: { prefix: "p" } }, "it has either session or newSession"],
  ["an unknown field", { ...good, every: 5 }, 'a schedule has no field "every". Did you mean "everyMs"?'],
  [
    "an unknown field of newSession",
    { ...good, session: undefined, newSession: { id: "p" } },
    'newSession has no field "id"',
  ],
  [
    "a zone nobody knows",
    { session: "s", cron: "0 9 * * *", timeZone: "Oslo", input: "hi" },
    'timeZone is a name such as "Europe/Oslo", not "Oslo"',
  ],
  ["a zone without cron", { ...good, timeZone: "UTC" }, "timeZone is for cron"],
  ["too often", { ...good, everyMs: 5 }, "everyMs is a whole number from 1000 to"],
  ["a moment without its zone", { session: "s", at: "2030-01-01T09:00", input: "hi" }, "not 2030-01-01T09:00"],
  [
    "no moment",
    { session: "s", at: new Date(Number.NaN), input: "hi" },
    "at is a Date, milliseconds since 1970, or a text with its zone",
  ],
  ["an overlap nobody knows", { ...good, overlap: "wait" }, 'overlap is "skip" or "queue" or "cancel", not "wait"'],
  ["no input", { session: "s", everyMs: 60_000 }, "it has an input: what the session is asked"],
  [
    "a file's bytes",
    {
      ...good,
      input: {
        items: [{ type: "attachment", source: { kind: "inline", mediaType: "a/b", bytes: new Uint8Array(1) } }],
      },
    },
    "its input cannot bring a file's bytes",
  ],
  ["a long input", { ...good, input: "x".repeat(70_000) }, "its input has 70000 characters; 65536 are allowed"],
  ["no run at all", { ...good, maxRuns: 0 }, "maxRuns is a whole number from 1"],
])("a schedule with %s is refused in the words of the request", (_, request, message) => {
  expect(() => checkSchedule(request)).toThrow(message);
});

test("a schedule whose first run is behind its until is refused, and so is a key that can be no name", () => {
  expect(() => begin({ everyMs: 10_000, until: START + 1 })).toThrow(
    "its first run, at 2030-01-01T00:00:10.000Z, is behind",
  );
  expect(() => checkScheduleKey("")).toThrow("its key is a text of 1 to 200 characters");
  expect(() => checkScheduleKey("a\nb")).toThrow("without control characters");
});
