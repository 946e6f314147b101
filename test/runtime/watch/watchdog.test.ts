import { expect, test } from "vitest";
import { Watchdog } from "../../../src/runtime/watch/watchdog.js";
import { newStage, StageWriter } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

/** A watched thread without an id: it never waits for a processor. The clock is moved look by look, 20 ms each. */
function watched(blockedMs: number) {
  const clock = new ManualClock();
  const stage = newStage();
  const writer = new StageWriter(stage);
  const said: string[] = [];
  const say = (what: string) => () => void said.push(`${what} at ${clock.now()}`);
  const end = new Watchdog(clock).watch({
    stage,
    tid: undefined,
    blockedMs,
    busyShare: () => 0,
    ping: async () => undefined,
    onHeld: say("held"),
    onBlocked: say("blocked"),
  });
  const looks = (count: number) => {
    for (let n = 0; n < count; n++) clock.advance(20);
  };
  return { writer, said, looks, clock, end };
}
const started = new Int32Array(1);

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
