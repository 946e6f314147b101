import { describe, expect, test } from "vitest";
import { deferred } from "../../../src/async/index.js";
import type { Cancellation, JournalRow } from "../../../src/kernel/index.js";
import { completionKeyOf } from "../../../src/kernel/index.js";
import { START, type UnfinishedTurn } from "../../../src/session/journal/unfinished-turn.js";
import { deadlineOf } from "../../../src/session/turn/turn-deadline.js";
import { encode } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

const LIMIT = { deadlineMs: 1_000, countsWaiting: false, keepsPartial: true };

function started(limit: Partial<typeof LIMIT> = {}, unfinished?: UnfinishedTurn, wallNow = 10_000) {
  const clock = new ManualClock({ wallNow });
  const expired: Cancellation[] = [];
  const expire = (why: Cancellation) => void expired.push(why);
  const deadline = deadlineOf({ sessionId: "s", limit: { ...LIMIT, ...limit }, clock, expire, unfinished });
  if (deadline === undefined) throw new Error("There is none.");
  return { clock, expired, deadline };
}

const flushed = () => new Promise((resolve) => setImmediate(resolve));

describe("a turn's time", () => {
  test("is up when it has run for so long, once", () => {
    const { clock, expired } = started();
    clock.advance(999);
    expect(expired).toEqual([]);
    clock.advance(1);
    clock.advance(5_000);
    expect(expired).toEqual([{ reason: "The turn did not end within 1000 ms.", deadline: true, keepPartial: true }]);
    expect(clock.timers).toBe(0);
  });

  test("costs no timer when the turn has ended, and none without a deadline", () => {
    const { clock, deadline, expired } = started();
    deadline.end();
    expect(clock.timers).toBe(0);
    clock.advance(5_000);
    expect(expired).toEqual([]);
    const other = new ManualClock();
    const none = { ...LIMIT, deadlineMs: null };
    expect(
      deadlineOf({ sessionId: "s", limit: none, clock: other, expire: () => {}, unfinished: undefined }),
    ).toBeUndefined();
    expect(other.made).toBe(0);
  });

  test("stands still while its only call waits for people, and runs on with what is left", async () => {
    const { clock, deadline, expired } = started();
    const answer = deferred();
    clock.advance(400);
    const call = deadline.during(() => deadline.waiting(answer.promise));
    clock.advance(100_000);
    expect([expired.length, clock.timers]).toEqual([0, 0]);
    answer.resolve();
    await call;
    clock.advance(599);
    expect(expired).toEqual([]);
    clock.advance(1);
    expect(expired).toHaveLength(1);
  });

  test("runs on while another call of the turn still works", async () => {
    const { clock, deadline, expired } = started();
    const [answer, work] = [deferred(), deferred()];
    const calls = [deadline.during(() => deadline.waiting(answer.promise)), deadline.during(() => work.promise)];
    clock.advance(900);
    work.resolve();
    await calls[1];
    clock.advance(5_000);
    expect(expired).toEqual([]);
    answer.resolve();
    await calls[0];
    clock.advance(100);
    expect(expired).toHaveLength(1);
  });

  test("runs on also while it waits for people when it is to", () => {
    const { clock, deadline, expired } = started({ countsWaiting: true });
    void deadline.during(() => deadline.waiting(new Promise(() => {})));
    clock.advance(1_000);
    expect(expired).toHaveLength(1);
  });

  test("stands still while a spent budget waits for somebody to raise it", async () => {
    const { clock, deadline, expired } = started();
    const raised = deferred();
    const waiting = deadline.waiting(raised.promise);
    clock.advance(100_000);
    expect(expired).toEqual([]);
    raised.resolve();
    await waiting;
    await flushed();
    clock.advance(1_000);
    expect(expired).toHaveLength(1);
  });
});

/** A turn as its journal has it: each row when it was recorded. */
function left(...rows: readonly (readonly [key: string, at: number, value?: unknown])[]): UnfinishedTurn {
  const recorded = rows.map(
    ([key, at, value = null], sequence): JournalRow => ({
      turnId: "t1",
      key,
      hash: "",
      at,
      sequence,
      bytes: encode(value),
    }),
  );
  return { turnId: "t1", start: {} as never, rows: recorded, resumed: 0, strikes: 0, idle: 0, since: 0 };
}

const waits = (callId: string) => ({ callId, pending: {} });
const answerTo = (callId: string) => `answer:${completionKeyOf("s", "t1", callId)}`;

describe("the time of a turn that a crash left behind", () => {
  test("counts from when it began, with the time nobody ran it", () => {
    const { clock, expired } = started({}, left([START, 9_700]));
    clock.advance(699);
    expect(expired).toEqual([]);
    clock.advance(1);
    expect(expired).toHaveLength(1);
  });

  test("is up at once when it was up before", () => {
    const { clock, expired } = started({}, left([START, 1_000]));
    clock.advance(1);
    expect(expired).toHaveLength(1);
  });

  test.each<[string, UnfinishedTurn, number]>([
    [
      "a call that was answered waited",
      left([START, 1_000], ["tools:1:a:1", 1_100, waits("a")], [answerTo("a"), 9_900]),
      // 100 ms before it waited, 100 behind it.
      800,
    ],
    ["a call still waits", left([START, 1_000], ["tools:1:a:1", 1_300, waits("a")]), 700],
    [
      "one call waited while another worked",
      left([START, 9_000], ["tools:1:a:1", 9_100, waits("a")], ["tools:1:b:1", 9_500], [answerTo("a"), 9_700]),
      // It waited for nothing else from 9,500 to 9,700.
      200,
    ],
  ])("is without the time it waited for people: %s", (_, unfinished, leftMs) => {
    const { clock, expired } = started({}, unfinished);
    clock.advance(leftMs - 1);
    expect(expired).toEqual([]);
    clock.advance(1);
    expect(expired).toHaveLength(1);
  });

  test("counts the waiting too when it is to", () => {
    const { clock, expired } = started(
      { countsWaiting: true },
      left([START, 1_000], ["tools:1:a:1", 1_300, waits("a")]),
    );
    clock.advance(1);
    expect(expired).toHaveLength(1);
  });
});
