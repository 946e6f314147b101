import { expect, test } from "vitest";
import { MemoryAlarm } from "../../../src/runtime/watch/memory-alarm.js";
import { ManualClock } from "../../support/manual-clock.js";

const MB = 1024 * 1024;

function alarmed() {
  const clock = new ManualClock();
  const seen = { usedMb: 0, asked: 0, warned: [] as string[] };
  const alarm = new MemoryAlarm({
    clock,
    limitMb: 1_000,
    rss: () => seen.usedMb * MB,
    ask: () => void seen.asked++,
    warn: ({ code, details }) => void seen.warned.push(`${code} ${details.usedMb} of ${details.limitMb}`),
  });
  const look = (usedMb: number) => {
    seen.usedMb = usedMb;
    alarm.look();
  };
  return { clock, seen, look };
}

test("a process that uses less than most of its memory asks its plugin threads nothing", () => {
  const { seen, look } = alarmed();
  look(849);
  expect(seen).toMatchObject({ asked: 0, warned: [] });
});

test("a process that nears its memory is warned of once, and asks its plugin threads once a second", () => {
  const { clock, seen, look } = alarmed();
  look(850);
  look(900);
  expect(seen).toMatchObject({ asked: 1, warned: ["memory_high 850 of 1000"] });
  clock.advance(1_000);
  look(900);
  expect(seen).toMatchObject({ asked: 2, warned: ["memory_high 850 of 1000"] });
});

test("a process that is well below its memory again is warned of anew the next time", () => {
  const { seen, look } = alarmed();
  for (const usedMb of [900, 800, 900, 749, 900]) look(usedMb);
  expect(seen.warned).toEqual(["memory_high 900 of 1000", "memory_high 900 of 1000"]);
});
