import { beforeEach, describe, expect, it } from "vitest";
import { Deadlines } from "../../src/wire/index.js";
import { ManualClock } from "../support/manual-clock.js";

let clock: ManualClock;
beforeEach(() => {
  clock = new ManualClock();
});

describe("Deadlines", () => {
  it("expire when their time has come and not before, each once", () => {
    const deadlines = new Deadlines(clock);
    const expired: string[] = [];
    deadlines.add(50, () => expired.push("a"));
    clock.advance(49);
    expect(expired).toEqual([]);
    clock.advance(1);
    expect(expired).toEqual(["a"]);
    clock.advance(1_000);
    expect(expired).toEqual(["a"]);
  });

  it("expire in the order of their times, whatever the order they were added in", () => {
    const deadlines = new Deadlines(clock);
    const expired: string[] = [];
    deadlines.add(30, () => expired.push("30"));
    deadlines.add(10, () => expired.push("10"));
    deadlines.add(20, () => expired.push("20"));
    clock.advance(5);
    deadlines.add(10, () => expired.push("5+10"));
    clock.advance(100);
    expect(expired).toEqual(["10", "5+10", "20", "30"]);
  });

  it("let go of what they were about when they are cancelled, also behind one that is not", () => {
    const deadlines = new Deadlines(clock);
    deadlines.add(50, () => {});
    const behind = deadlines.add(50, () => {}, { payload: "large" });
    deadlines.cancel(behind);
    expect(behind.subject).toBeUndefined();
  });

  it("use one timer for all with the same limit", () => {
    const deadlines = new Deadlines(clock);
    for (let i = 0; i < 100; i++) deadlines.add(10, () => {});
    expect(clock.timers).toBe(1);
    deadlines.add(20, () => {});
    expect(clock.timers).toBe(2);
  });

  it("do not expire once cancelled, and the others still do", () => {
    const deadlines = new Deadlines(clock);
    const expired: number[] = [];
    const entries = [0, 1, 2, 3, 4].map((n) => deadlines.add(10, () => expired.push(n)));
    for (const n of [0, 2, 4]) deadlines.cancel(entries[n] as (typeof entries)[number]);
    clock.advance(10);
    expect(expired).toEqual([1, 3]);
  });

  it("can be cancelled twice, and after they expired", () => {
    const deadlines = new Deadlines(clock);
    const expired: string[] = [];
    const a = deadlines.add(10, () => expired.push("a"));
    clock.advance(10);
    deadlines.cancel(a);
    deadlines.cancel(a);
    deadlines.add(10, () => expired.push("b"));
    clock.advance(10);
    expect(expired).toEqual(["a", "b"]);
  });

  it("keep no more entries than are in flight, however many were settled", () => {
    const deadlines = new Deadlines(clock);
    let entry = deadlines.add(10, () => {});
    for (let i = 0; i < 10_000; i++) {
      const next = deadlines.add(10, () => {});
      deadlines.cancel(entry);
      entry = next;
    }
    expect(entry.queue.entries.length).toBeLessThan(1_000);
  });

  it("still expire behind thousands that were cancelled", () => {
    const deadlines = new Deadlines(clock);
    const expired: string[] = [];
    for (let i = 0; i < 1_000; i++) deadlines.cancel(deadlines.add(10, () => expired.push("cancelled")));
    deadlines.add(10, () => expired.push("live"));
    clock.advance(10);
    expect(expired).toEqual(["live"]);
  });

  it("never expire after clear, and leave no timer", () => {
    const deadlines = new Deadlines(clock);
    const expired: string[] = [];
    const a = deadlines.add(10, () => expired.push("a"));
    deadlines.add(20, () => expired.push("b"));
    deadlines.clear();
    expect(clock.timers).toBe(0);
    deadlines.cancel(a);
    deadlines.add(10, () => expired.push("c"));
    clock.advance(100);
    expect(expired).toEqual(["c"]);
  });

  it("may add new ones while they expire", () => {
    const deadlines = new Deadlines(clock);
    const expired: string[] = [];
    deadlines.add(10, () => {
      expired.push("first");
      deadlines.add(10, () => expired.push("second"));
    });
    clock.advance(10);
    expect(expired).toEqual(["first"]);
    clock.advance(10);
    expect(expired).toEqual(["first", "second"]);
  });

  it("can be longer than a timer: the timer is armed again for what is left", () => {
    const deadlines = new Deadlines(clock);
    const expired: string[] = [];
    deadlines.add(2 ** 31 + 100, () => expired.push("late"));
    deadlines.add(Number.POSITIVE_INFINITY, () => expired.push("never"));
    const { made } = clock;
    clock.advance(2 ** 31 - 2);
    expect(clock.made).toBe(made);
    clock.advance(101);
    expect(expired).toEqual([]);
    clock.advance(1);
    expect(expired).toEqual(["late"]);
  });
});
