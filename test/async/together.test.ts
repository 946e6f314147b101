import { expect, test } from "vitest";
import { Together } from "../../src/async/index.js";
import { ManualClock } from "../support/manual-clock.js";

test("what is asked for in one turn of the loop runs in the next, in one go and in the order it was asked for", async () => {
  const clock = new ManualClock();
  const together = new Together(clock);
  const log: string[] = [];
  const task = (name: string) => () => {
    log.push(name);
    void Promise.resolve().then(() => log.push(`behind ${name}`));
  };
  together.soon(task("one"));
  together.soon(() => {
    task("two")();
    together.soon(task("three"));
  });
  expect(log).toEqual([]);
  await clock.turn();
  expect(log).toEqual(["one", "two", "behind one", "behind two", "three", "behind three"]);
});

test("a task that throws throws by itself, and the others run", () => {
  const clock = new ManualClock();
  const soon: (() => void)[] = [];
  clock.soon = (run) => {
    soon.push(run);
    return clock.timeout(1, () => {});
  };
  const together = new Together(clock);
  let ran = false;
  together.soon(() => {
    throw new Error("no");
  });
  together.soon(() => {
    ran = true;
  });
  soon.shift()?.();
  expect(ran).toBe(true);
  expect(soon.shift()).toThrow("no");
});
