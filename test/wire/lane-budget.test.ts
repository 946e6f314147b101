import { expect, test } from "vitest";
import { ManualClock } from "../support/manual-clock.js";
import { lanePair } from "./threads.js";

const BUDGET_MS = 4;
/** Entries are read eight at a time between two looks at the clock. */
const AT_ONCE = 8;

/** One thread that serves two callers, each call by a millisecond's work; what it served, in order. */
function servedByOne() {
  const clock = new ManualClock();
  const served: string[] = [];
  const serve = (_: string, payload: unknown) => {
    served.push(payload as string);
    clock.advance(1);
    return payload;
  };
  const [flooding, quiet] = [1, 2].map(() => lanePair({}, { clock, serve, budgetMs: BUDGET_MS }));
  return {
    clock,
    served,
    flooding: flooding as ReturnType<typeof lanePair>,
    quiet: quiet as ReturnType<typeof lanePair>,
  };
}

test("a flooded lane serves its budget's worth of calls, then another lane has its turn, and the flood goes on in order", async () => {
  const { clock, served, flooding, quiet } = servedByOne();
  const flood = Array.from({ length: 200 }, (_, n) => flooding.left.call("work", `flood ${n}`));
  await quiet.left.call("work", "quiet");
  // The clock is looked at after every eight entries: eight milliseconds are more than the budget.
  expect(served.indexOf("quiet")).toBe(AT_ONCE);
  while (served.length < flood.length + 1) await clock.turn();
  await Promise.all(flood);
  expect(served.filter((each) => each !== "quiet")).toEqual(flood.map((_, n) => `flood ${n}`));
});

test("notes and calls of one lane are served in the order they were said, also when the budget parts them", async () => {
  const clock = new ManualClock();
  const heard: unknown[] = [];
  const serve = (_: string, payload: unknown) => {
    clock.advance(1);
    heard.push(payload);
  };
  const { left } = lanePair({}, { clock, serve, onNote: (_, payload) => heard.push(payload), budgetMs: BUDGET_MS });
  const said = Array.from({ length: 120 }, (_, n) => n);
  const calls = said.map((n) => (n % 2 === 0 ? left.call("work", n) : left.note("note", n)));
  while (heard.length < said.length) await clock.turn();
  await Promise.all(calls);
  expect(heard).toEqual(said);
});
