import fc from "fast-check";
import { expect, test } from "vitest";
import { loadCron } from "../../../src/runtime/schedules/cron.js";

const cron = await loadCron();
const next = (expression: string, zone: string, after: string) => {
  const found = cron(expression, zone, Date.parse(after));
  return found === null ? null : new Date(found).toISOString();
};

test("a time that the beginning of summer time skips is behind the gap, once", () => {
  expect(next("30 2 * * *", "Europe/Oslo", "2026-03-28T12:00:00Z")).toBe("2026-03-29T01:00:00.000Z");
  expect(next("30 2 * * *", "Europe/Oslo", "2026-03-29T01:00:00Z")).toBe("2026-03-30T00:30:00.000Z");
});

test("a time that the end of summer time repeats is once, and an hourly one is every hour of both", () => {
  expect(next("30 2 * * *", "Europe/Oslo", "2026-10-24T12:00:00Z")).toBe("2026-10-25T00:30:00.000Z");
  expect(next("30 2 * * *", "Europe/Oslo", "2026-10-25T00:30:00Z")).toBe("2026-10-26T01:30:00.000Z");
  expect(next("0 * * * *", "Europe/Oslo", "2026-10-25T00:00:00Z")).toBe("2026-10-25T01:00:00.000Z");
});

test("an expression that never comes has no next time, and one that is none says what is wrong with it", () => {
  expect(next("0 0 30 2 *", "UTC", "2026-01-01T00:00:00Z")).toBeNull();
  expect(() => cron("61 * * * *", "UTC", 0)).toThrow('cron "61 * * * *": Invalid value for minute: 61');
  expect(() => cron("* * * *", "UTC", 0)).toThrow("exactly five, six, or seven space separated parts are required");
});

const ZONES = ["UTC", "Europe/Oslo", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns"];
/** Days around both changes of the clocks, of the north and of the south, and any other. */
const moments = fc.oneof(
  fc.integer({ min: Date.UTC(2026, 2, 7), max: Date.UTC(2026, 3, 6) }),
  fc.integer({ min: Date.UTC(2026, 9, 3), max: Date.UTC(2026, 10, 2) }),
  fc.integer({ min: Date.UTC(2025, 0, 1), max: Date.UTC(2029, 0, 1) }),
);

/** Minutes since midnight. */
function localTime(zone: string, at: number): number {
  const parts = new Intl.DateTimeFormat("en-GB", { timeZone: zone, hour: "numeric", minute: "numeric", hour12: false });
  const [hour, minute] = parts.format(at).split(":").map(Number) as [number, number];
  return (hour % 24) * 60 + minute;
}

test("a daily time comes once between two midnights of its zone, at its hour or behind the gap that has it, whatever the clocks do", () => {
  fc.assert(
    fc.property(
      fc.constantFrom(...ZONES),
      fc.integer({ min: 0, max: 23 }),
      fc.integer({ min: 0, max: 59 }),
      moments,
      (zone, hour, minute, after) => {
        const expression = `${minute} ${hour} * * *`;
        const first = cron(expression, zone, after) as number;
        const second = cron(expression, zone, first) as number;
        expect(first).toBeGreaterThan(after);
        // A day is 23 to 25 hours long, and a time behind a gap is up to an hour late.
        expect(second - first).toBeGreaterThanOrEqual(22.5 * 3_600_000);
        expect(second - first).toBeLessThanOrEqual(26 * 3_600_000);
        const local = localTime(zone, first);
        const lateMinutes = (local - (hour * 60 + minute) + 1_440) % 1_440;
        expect(lateMinutes).toBeLessThanOrEqual(60);
        // In time, unless the clocks have no such time on that day.
        if (lateMinutes > 0) expect(local - localTime(zone, first - 60_000)).toBeGreaterThan(lateMinutes);
      },
    ),
    { numRuns: 400 },
  );
});

test("every quarter of an hour comes every quarter of an hour, through both changes of the clocks", () => {
  fc.assert(
    fc.property(fc.constantFrom("UTC", "Europe/Oslo", "America/New_York", "Asia/Kathmandu"), moments, (zone, after) => {
      const first = cron("*/15 * * * *", zone, after) as number;
      expect((cron("*/15 * * * *", zone, first) as number) - first).toBe(900_000);
    }),
    { numRuns: 300 },
  );
});
