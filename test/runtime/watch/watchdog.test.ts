import { describe, expect, test } from "vitest";
import { HeldTime } from "../../../src/runtime/watch/held-time.js";
import type { ThreadUsage } from "../../../src/runtime/watch/thread-usage.js";
import { Watchdog } from "../../../src/runtime/watch/watchdog.js";
import { newStage, StageWriter } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

const LOOK_MS = 20;
const started = new Int32Array(1);

/** A watched thread; without `usage` the system says nothing of it. The clock is moved look by look. */
function watched(blockedMs: number, usage: ThreadUsage = { usage: () => undefined, isRunnable: never, close() {} }) {
  const clock = new ManualClock();
  const stage = newStage();
  const writer = new StageWriter(stage);
  const said: string[] = [];
  const say = (what: string) => () => void said.push(`${what} at ${clock.now()}`);
  const end = new Watchdog(clock, undefined, () => usage).watch({
    stage,
    tid: 1,
    blockedMs,
    busyShare: () => 0,
    ping: async () => undefined,
    onHeld: say("held"),
    onBlocked: say("blocked"),
  });
  const looks = (count: number) => {
    for (let n = 0; n < count; n++) clock.advance(LOOK_MS);
  };
  return { writer, said, looks, clock, end };
}

function never(): never {
  throw new Error("The state of a thread is looked at only where its figures leave something open");
}

test("a call is counted from the first look that finds it: at half of blockedMs it holds its thread for long, at all of it it blocks it", () => {
  const { writer, said, looks } = watched(50);
  writer.enter(1, started, 1);
  looks(10);
  expect(said).toEqual(["held at 60", "blocked at 80"]);
});

test("calls that are short, however many follow each other without a break, neither hold nor block their thread", () => {
  const { writer, said, looks } = watched(50);
  for (let call = 1; call <= 20; call++) {
    writer.enter(1, started, call);
    looks(1);
    writer.leave();
  }
  expect(said).toEqual([]);
});

test("a thread that is no longer watched is judged no more, and the last one takes the timer with it", () => {
  const { writer, said, looks, clock, end } = watched(50);
  writer.enter(1, started, 1);
  looks(1);
  end();
  looks(10);
  expect(said).toEqual([]);
  expect(clock.timers).toBe(0);
});

describe("of a thread whose times the system tells", () => {
  /** A thread that does as it is told. A wait for a processor stands in the figures only once it is over. */
  function scripted(blockedMs: number) {
    const times = { burntMs: 1, waitedMs: 0 };
    let [untold, runnable, looksAtState] = [0, false, 0];
    const thread = watched(blockedMs, {
      usage: () => ({ ...times }),
      isRunnable: () => {
        looksAtState++;
        return runnable;
      },
      close() {},
    });
    const pass = (ms: number, does: () => void) => {
      for (let n = 0; n < ms / LOOK_MS; n++) {
        does();
        thread.clock.advance(LOOK_MS);
      }
    };
    const getsProcessor = () => {
      times.waitedMs += untold;
      untold = 0;
      runnable = true;
    };
    return {
      ...thread,
      runs: (ms: number) =>
        pass(ms, () => {
          getsProcessor();
          times.burntMs += LOOK_MS;
        }),
      waits: (ms: number) =>
        pass(ms, () => {
          runnable = true;
          untold += LOOK_MS;
        }),
      /** Runs for so much of each look, and waits for the rest of it. */
      runsOf: (ms: number, share: number) =>
        pass(ms, () => {
          getsProcessor();
          times.burntMs += LOOK_MS * share;
          untold += LOOK_MS * (1 - share);
        }),
      sleeps: (ms: number) =>
        pass(ms, () => {
          getsProcessor();
          runnable = false;
        }),
      /** The system does not say what the thread does now. */
      seemsAsleep: (ms: number) =>
        pass(ms, () => {
          runnable = false;
          untold += LOOK_MS;
        }),
      looksAtState: () => looksAtState,
    };
  }

  test("one that waits for a processor is not accused while nobody has told of the wait, nor when it is told, nor by its work afterwards", () => {
    const { writer, waits, runs, said } = scripted(250);
    writer.enter(1, started, 1);
    runs(40);
    waits(2_000);
    runs(60);
    waits(2_000);
    runs(20);
    expect(said).toEqual([]);
  });

  test("what was counted of a wait is taken back when the wait is told", () => {
    const { writer, runs, seemsAsleep, said } = scripted(250);
    writer.enter(1, started, 1);
    runs(20);
    seemsAsleep(220);
    expect(said).toEqual(["held at 160"]);
    runs(100);
    expect(said).toEqual(["held at 160"]);
    runs(160);
    expect(said).toEqual(["held at 160", "held at 380", "blocked at 500"]);
  });

  test("one that loops is found within 150 ms behind blockedMs, and nobody looks at its state", () => {
    const { writer, runs, said, looksAtState } = scripted(250);
    writer.enter(1, started, 1);
    runs(400);
    expect(said).toEqual(["held at 160", "blocked at 280"]);
    expect(looksAtState()).toBe(0);
  });

  test("one that sleeps, in Atomics.wait or in a native call, is found within 150 ms behind blockedMs", () => {
    const { writer, runs, sleeps, said } = scripted(250);
    writer.enter(1, started, 1);
    runs(20);
    sleeps(380);
    expect(said).toEqual(["held at 160", "blocked at 280"]);
  });

  test("one that sleeps behind a long wait for a processor is found within 150 ms behind its waking", () => {
    const { writer, waits, sleeps, said } = scripted(250);
    writer.enter(1, started, 1);
    waits(1_000);
    sleeps(380);
    expect(said).toEqual(["held at 1160", "blocked at 1280"]);
  });

  test("of one that runs, waits and then sleeps, what it ran and what it slept counts, and the wait between does not", () => {
    const { writer, runs, waits, sleeps, said } = scripted(250);
    writer.enter(1, started, 1);
    runs(100);
    waits(200);
    sleeps(240);
    expect(said).toEqual(["held at 360", "blocked at 480"]);
  });

  test("one that loops on a crowded machine is found when it has burnt its blockedMs, and not before", () => {
    const { writer, runsOf, said } = scripted(250);
    writer.enter(1, started, 1);
    runsOf(1_100, 0.25);
    expect(said).toEqual(["held at 520", "blocked at 1020"]);
  });
});

test("of the time that the one who looks stood still himself no more than two looks count, less what the thread waited of it", () => {
  const times = { burntMs: 1, waitedMs: 0 };
  const held = new HeldTime({ usage: () => ({ ...times }), isRunnable: never, close() {} }, 40);
  held.begin();
  times.burntMs += 5_000;
  held.goOn(5_000);
  expect(held.ms).toBe(40);
  times.burntMs += 10;
  times.waitedMs += 4_990;
  held.goOn(5_000);
  expect(held.ms).toBe(50);
});
