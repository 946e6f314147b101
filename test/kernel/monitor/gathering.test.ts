import { expect, test } from "vitest";
import { cutLine, Gathering } from "../../../src/kernel/monitor/index.js";

const lines = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => `line ${from + n}`);

test("lines are gathered until nothing has come for a while, and five times as long at the most", () => {
  const gathering = new Gathering({ debounceMs: 100, maxPerMinute: 60 }, 0);
  expect(gathering.dueAt).toBe(undefined);
  gathering.add(["a"], 10);
  expect(gathering.dueAt).toBe(110);
  for (let now = 60; now < 600; now += 50) gathering.add(["b"], now);
  expect(gathering.dueAt).toBe(510);
  expect(gathering.take(510).lines.length).toBe(12);
  expect(gathering.dueAt).toBe(undefined);
});

test("no more updates are due in a minute than may be, and what comes meanwhile is gathered", () => {
  const gathering = new Gathering({ debounceMs: 1, maxPerMinute: 2 }, 0);
  const due: number[] = [];
  for (let n = 0; n < 4; n++) {
    gathering.add([`${n}`], due.at(-1) ?? 0);
    due.push(gathering.dueAt as number);
    gathering.take(gathering.dueAt as number);
  }
  expect(due).toEqual([1, 2, 30_001, 60_001]);
});

test("of more lines than an update has the newest are kept, and the others counted", () => {
  const gathering = new Gathering({ debounceMs: 1, maxPerMinute: 600 }, 0);
  for (let n = 0; n < 1_000; n += 50) gathering.add(lines(n, n + 50), n);
  expect(gathering.take(1_000)).toEqual({ lines: lines(900, 1_000), dropped: 900 });
  gathering.add(
    Array.from({ length: 20 }, () => "x".repeat(1_900)),
    1_001,
  );
  const { lines: kept, dropped } = gathering.take(1_002);
  expect([kept.length, dropped]).toEqual([8, 12]);
});

test("a line that is too long is cut, and not within a character", () => {
  expect(cutLine("short")).toBe("short");
  expect(cutLine("x".repeat(3_000))).toBe(`${"x".repeat(1_999)}…`);
  expect(cutLine(`${"x".repeat(1_998)}😀${"x".repeat(100)}`)).toBe(`${"x".repeat(1_998)}…`);
});
