import { expect, test } from "vitest";
import { type LoadedThread, SpareThread } from "../../../src/runtime/threads/loaded-threads.js";
import { newStage } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

/** A spare whose threads are none, and how many of them were loaded. */
function spare(spares = { left: 1 }) {
  const clock = new ManualClock();
  const loaded: LoadedThread[] = [];
  const made = new SpareThread({ spares, clock }, async () => {
    const thread = { exited: new Promise(() => undefined), terminate: async () => undefined };
    const one = { thread, stage: newStage(), tid: undefined } as unknown as LoadedThread;
    loaded.push(one);
    return one;
  });
  return { clock, made, loaded };
}

test("a spare thread that is wanted later is loaded then, and not before", async () => {
  const { clock, made, loaded } = spare();
  made.make(1_000);
  clock.advance(999);
  expect([loaded.length, await made.take()]).toEqual([0, undefined]);
  clock.advance(1);
  expect([loaded.length, await made.take()]).toEqual([1, loaded[0]]);
});

test("a spare thread that is wanted now is not loaded once more because it was wanted later", async () => {
  const { clock, made, loaded } = spare();
  made.make(1_000);
  made.make();
  expect(await made.take()).toBe(loaded[0]);
  clock.advance(1_000);
  expect(loaded).toHaveLength(1);
});

test("a spare thread that is wanted later is not loaded once its group is closed", async () => {
  const { clock, made, loaded } = spare();
  made.make(1_000);
  await made.close();
  clock.advance(1_000);
  expect(loaded).toHaveLength(0);
});

test("all groups together have no more spare threads than there may be; one that is taken makes room for the next", async () => {
  const spares = { left: 1 };
  const [one, other] = [spare(spares), spare(spares)];
  one.made.make();
  other.made.make();
  expect([one.loaded.length, other.loaded.length]).toEqual([1, 0]);
  expect(await one.made.take()).toBe(one.loaded[0]);
  other.made.make();
  expect([one.loaded.length, other.loaded.length]).toEqual([1, 1]);
});
