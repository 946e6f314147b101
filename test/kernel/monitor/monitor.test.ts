import { expect, test } from "vitest";
import {
  beginMonitor,
  checkMonitor,
  deliversItself,
  inputOfMonitor,
  type MonitorRequest,
  monitorOrder,
  type StoredMonitor,
  startedAgain,
  takenFrom,
  type WatchNews,
  withNews,
} from "../../../src/kernel/monitor/index.js";

function begun(request: Partial<MonitorRequest> = {}): StoredMonitor {
  const { id, spec } = checkMonitor({ id: "m", argv: ["yes"], ...request });
  return beginMonitor({ id, owner: "p", spec, now: 1_000 });
}

function news(lines: readonly string[], more: Partial<WatchNews> = {}): WatchNews {
  return { lines, dropped: 0, place: null, restarted: false, end: null, ...more };
}

test("an update has its number, its lines and what was lost before them, and says once that it was started again", () => {
  const first = withNews(startedAgain(begun()), news(["a", "b"], { dropped: 3 }), 1_001);
  const { pending, told, sequence, starts } = withNews(first, news(["c"]), 1_002);
  expect(pending).toEqual([
    { monitorId: "m", sequence: 1, at: 1_001, text: "a\nb", lines: 2, dropped: 3, restarted: true },
    { monitorId: "m", sequence: 2, at: 1_002, text: "c", lines: 1, dropped: 0, restarted: false },
  ]);
  expect([told, sequence, starts]).toEqual([6, 2, 2]);
});

test("nothing to tell makes no update, and nothing comes of one that has ended", () => {
  const stored = begun();
  expect(withNews(stored, news([]), 1_001)).toBe(stored);
  const ended = withNews(stored, news([], { end: { reason: "stopped" } }), 1_001);
  expect(ended.pending).toMatchObject([{ sequence: 1, text: "", end: { reason: "stopped" } }]);
  expect(withNews(ended, news(["late"]), 1_002)).toBe(ended);
});

test("of updates nobody takes the newest are kept, and the next one says how many lines were lost", () => {
  let stored = begun();
  for (let n = 0; n < 100; n++) stored = withNews(stored, news([`${n}`, "x"], { dropped: 1 }), n);
  expect(stored.pending.length).toBe(64);
  // Of 36 updates two lines each and what they had lost, and its own.
  expect(stored.pending[0]).toMatchObject({ sequence: 37, dropped: 36 * 3 + 1 });
  stored = begun();
  for (let n = 0; n < 10; n++) stored = withNews(stored, news(["x".repeat(16_000)]), n);
  expect(stored.pending.map(({ sequence, dropped }) => [sequence, dropped])).toEqual([
    [7, 6],
    [8, 0],
    [9, 0],
    [10, 0],
  ]);
});

test("one that begins anew keeps the updates nobody took, and their numbers go on", () => {
  const before = withNews(begun(), news(["a"], { end: { reason: "lines" } }), 1_001);
  const { id, owner, spec } = before;
  const again = beginMonitor({ id, owner, spec, now: 2_000, before });
  expect(withNews(again, news(["b"]), 2_001).pending.map(({ sequence, text }) => [sequence, text])).toEqual([
    [1, "a"],
    [2, "b"],
  ]);
});

test("what was taken is kept for who may ask again, and for nobody else", () => {
  const stored = withNews(begun(), news(["a"]), 1_001);
  expect(takenFrom(stored, "t1:x:1")).toMatchObject({ pending: [], taken: { by: "t1:x:1", updates: [{ text: "a" }] } });
  expect(takenFrom(stored, undefined)).toMatchObject({ pending: [], taken: null });
});

test("a starting runtime looks for those that go on, and for those that have ended and are still to be delivered", () => {
  const ended = (reason: "exit" | "stopped", deliver: "turn" | "none") =>
    withNews(begun({ deliver }), news(["a"], { end: { reason } }), 1_001);
  expect(monitorOrder(begun())).toEqual({ owner: "on", at: 1_000 });
  expect(deliversItself(ended("exit", "turn"))).toBe(true);
  expect(monitorOrder(ended("exit", "turn")).owner).toBe("on");
  expect(monitorOrder(takenFrom(ended("exit", "turn"), undefined)).owner).toBe("ended");
  expect(monitorOrder(ended("stopped", "turn")).owner).toBe("ended");
  expect(monitorOrder(ended("exit", "none")).owner).toBe("ended");
});

test("a session reads which monitor speaks, what it says, what was lost, and how it has ended", () => {
  const first = withNews(startedAgain(begun({ label: "The build" })), news(["a"], { dropped: 2 }), 1);
  const end = { reason: "exit", exitCode: 1, signal: null, stderr: "no disk" } as const;
  expect(inputOfMonitor(withNews(first, news(["b"], { end }), 2))).toBe(
    [
      'Monitor "The build" (it was started again in between; 2 lines before these were lost):\na',
      'Monitor "The build":\nb\nMonitor "The build" has ended: its command exited with 1, and said "no disk".',
    ].join("\n\n"),
  );
});
