import { expect, test } from "vitest";
import {
  DEFAULT_ATTACHMENTS,
  type RowChange,
  type RowName,
  type ScheduleRequest,
  TroupeError,
} from "../../../src/kernel/index.js";
import type { Runtime } from "../../../src/runtime/places/index.js";
import { Schedules, type SchedulesRuntime } from "../../../src/runtime/schedules/index.js";
import { wakeMe } from "../../../src/runtime/schedules/wake-tool.js";
import { openMemory } from "../../../src/store/index.js";
import type { OrderRange } from "../../../src/store/records/index.js";
import type { TroupeEvent } from "../../../src/trace/index.js";
import { ManualClock } from "../../support/manual-clock.js";

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

/** Schedules over a store in memory, and sessions that note what they were asked. */
function schedulesWith({ clock = new ManualClock() }: { readonly clock?: ManualClock } = {}) {
  const backend = openMemory({ clock });
  const heard: { readonly session: string; readonly at: number }[] = [];
  const events: TroupeEvent[] = [];
  const asked: string[] = [];
  let onAsk = async (): Promise<void> => {};
  let onDeliver = async (_write: () => void): Promise<void> => _write();
  const change = (changes: readonly RowChange[]) => {
    const [result] = backend.write([{ kind: "rows", changes }]);
    if (result !== undefined && "error" in result) throw result.error;
    return result;
  };
  const store: Record<string, (argument: never) => unknown> = {
    row: (name: RowName) => backend.row(name),
    rows: (range: { table: string; limit: number }) => backend.rows(range),
    rowsInOrder: (range: OrderRange) => backend.rowsInOrder(range),
    changeRows: ({ changes }: { changes: readonly RowChange[] }) => change(changes),
  };
  const ask = async (method: string, argument: never) => {
    asked.push(method);
    await onAsk();
    return store[method]?.(argument);
  };
  const runtime: SchedulesRuntime = {
    options: { clock, worker: { attachments: DEFAULT_ATTACHMENTS } },
    store: { ask: ask as Runtime["store"]["ask"] },
    events: { emit: (event) => void events.push(event as TroupeEvent) } as Runtime["events"],
    async ask(_, { sessionId, rows }) {
      await onDeliver(() => {
        change([rows.taken]);
        heard.push({ session: sessionId, at: clock.wallNow() });
      });
      return "taken";
    },
  };
  const schedules = new Schedules({ runtime, open: async () => undefined, checkAgent: () => {} });
  const put = async (key: string, request: Partial<ScheduleRequest>) =>
    schedules.put(key, { session: key, input: "Now.", ...request } as ScheduleRequest);
  return {
    schedules,
    clock,
    heard,
    events,
    asked,
    put,
    onAsk: (then: typeof onAsk) => {
      onAsk = then;
    },
    onDeliver: (then: typeof onDeliver) => {
      onDeliver = then;
    },
  };
}

test("a schedule that becomes due while the run of another is made is run too", async () => {
  const { put, clock, heard, onDeliver } = schedulesWith();
  const start = clock.wallNow();
  onDeliver(async (write) => {
    write();
    // The session takes its time, and meanwhile the other one is due.
    clock.advance(40);
  });
  await put("a", { at: start + 1_000 });
  await put("b", { at: start + 1_020 });
  await clock.elapse(5_000);
  expect(heard.map(({ session }) => session)).toEqual(["a", "b"]);
});

/** Its timers come a millisecond before their time, as the system's do. */
class EarlyClock extends ManualClock {
  override timeout(ms: number, run: () => void) {
    return super.timeout(ms - 1, run);
  }
}

test("a schedule is run when its timer comes a moment before its time", async () => {
  const { put, clock, heard, onAsk } = schedulesWith({ clock: new EarlyClock() });
  await put("a", { at: clock.wallNow() + 1_000 });
  // The clock goes on between the question what is due and the one what is next.
  onAsk(async () => clock.advance(1));
  await clock.elapse(5_000);
  expect(heard.map(({ session }) => session)).toEqual(["a"]);
});

test("without a schedule there is no timer and nothing is asked, and the last run leaves neither", async () => {
  const { schedules, put, clock, heard, asked } = schedulesWith();
  schedules.start(null);
  expect([clock.made, asked.length]).toEqual([0, 0]);
  for (let n = 0; n < 100; n++) await put(`s${n}`, { at: clock.wallNow() + MINUTE + n });
  expect([clock.made, clock.timers]).toEqual([1, 1]);
  await clock.elapse(2 * MINUTE);
  expect([heard.length, clock.timers]).toEqual([100, 0]);
  const done = asked.length;
  await clock.elapse(30 * DAY);
  expect([asked.length, clock.timers]).toEqual([done, 0]);
});

test("paused, removed and ended schedules leave no timer behind their next look", async () => {
  const { schedules, put, clock, heard } = schedulesWith();
  await put("paused", { everyMs: MINUTE });
  await put("removed", { everyMs: MINUTE });
  await put("twice", { everyMs: MINUTE, maxRuns: 2 });
  await put("until", { everyMs: MINUTE, until: clock.wallNow() + MINUTE });
  await schedules.pause("paused");
  await schedules.remove("removed");
  await clock.elapse(10 * MINUTE);
  expect(heard.map(({ session }) => session).sort()).toEqual(["twice", "twice", "until"]);
  expect(clock.timers).toBe(0);
});

test("a hundred sessions that wake once a day each wake thirty times in thirty days", async () => {
  const { put, clock, heard } = schedulesWith();
  for (let n = 0; n < 100; n++) await put(`s${n}`, { everyMs: DAY, jitterMs: n });
  await clock.elapse(30 * DAY + MINUTE);
  const counts = new Map<string, number>();
  for (const { session } of heard) counts.set(session, (counts.get(session) ?? 0) + 1);
  expect([counts.size, new Set(counts.values())]).toEqual([100, new Set([30])]);
  expect(clock.timers).toBe(1);
});

test("while the disk is full a run is tried after one second, two, four and so on, and is made once", async () => {
  const { put, clock, heard, events, onDeliver } = schedulesWith();
  const start = clock.wallNow();
  const tries: number[] = [];
  let full = true;
  onDeliver(async (write) => {
    tries.push((clock.wallNow() - start) / 1_000);
    if (full) throw new TroupeError("store_write_failed", "The disk is full.");
    write();
  });
  await put("a", { at: start });
  await clock.elapse(20_000);
  expect(tries.map(Math.round)).toEqual([0, 1, 3, 7, 15]);
  full = false;
  await clock.elapse(20_000);
  expect(tries.map(Math.round)).toEqual([0, 1, 3, 7, 15, 31]);
  expect([heard.length, clock.timers]).toEqual([1, 0]);
  expect(events.map(({ type }) => type)).toEqual(Array(5).fill("schedule_failed"));
});

test("a run whose answer was lost on the way is not made again, and is not looked for for ever", async () => {
  const { schedules, put, clock, heard, asked, onDeliver } = schedulesWith();
  onDeliver(async (write) => {
    write();
    throw new TroupeError("worker_lost", "The thread ended.");
  });
  await put("a", { everyMs: DAY });
  await clock.elapse(DAY + MINUTE);
  expect([heard.length, (await schedules.get("a"))?.runs]).toEqual([1, 1]);
  const before = asked.length;
  await clock.elapse(DAY - 2 * MINUTE);
  // Looks are far apart: a timer waits ten minutes at most.
  expect(asked.length - before).toBeLessThan(600);
  await clock.elapse(2 * MINUTE);
  expect(heard.length).toBe(2);
});

test.each([
  ["is paused", async (schedules: Schedules) => void (await schedules.pause("a"))],
  ["is removed", async (schedules: Schedules) => void (await schedules.remove("a"))],
])("a schedule that fails and then %s is looked for no more", async (_, stop) => {
  const { schedules, put, clock, asked, onDeliver } = schedulesWith();
  onDeliver(async () => {
    throw new TroupeError("mailbox_full", "Full.");
  });
  await put("a", { at: clock.wallNow() });
  await clock.elapse(2_000);
  await stop(schedules);
  await clock.elapse(10_000);
  const before = asked.length;
  await clock.elapse(DAY);
  expect([asked.length - before, clock.timers]).toEqual([0, 0]);
});

test("a schedule that fails and then finds its session deleted ends, and leaves no timer", async () => {
  const { schedules, put, clock, onDeliver } = schedulesWith();
  const codes = ["mailbox_full", "session_deleted"] as const;
  let tries = 0;
  onDeliver(async () => {
    throw new TroupeError(codes[tries++] ?? "session_deleted", "It does not work.");
  });
  await put("a", { at: clock.wallNow() });
  await clock.elapse(MINUTE);
  expect([tries, (await schedules.get("a"))?.state, clock.timers]).toEqual([2, "failed", 0]);
});

test("a model's call to be woken that is made again after a crash is the one schedule, with the time of before", async () => {
  const { schedules, clock } = schedulesWith();
  const args = { message: "Look.", in_seconds: 60 };
  const call = { sessionId: "s", turnId: "t1", callId: "c1" };
  const first = await wakeMe(schedules, clock, args, call);
  clock.advance(MINUTE / 2);
  expect(await wakeMe(schedules, clock, args, call)).toEqual(first);
  expect(await wakeMe(schedules, clock, args, { ...call, callId: "c2" })).not.toEqual(first);
  expect((await schedules.list()).schedules).toHaveLength(2);
});

test("behind close no look begins and no timer is left", async () => {
  const { schedules, put, clock, heard } = schedulesWith();
  await put("a", { at: clock.wallNow() + MINUTE });
  await schedules.close();
  expect(clock.timers).toBe(0);
  await clock.elapse(DAY);
  expect(heard).toEqual([]);
});
