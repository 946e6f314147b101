import { expect, test } from "vitest";
import { type Deferred, deferred } from "../../../src/async/index.js";
import { SideBySide } from "../../../src/runtime/schedules/side-by-side.js";

const settled = async () => {
  for (let n = 0; n < 10; n++) await Promise.resolve();
};

test("things are done side by side, several beginning together as soon as there is room for all of them", async () => {
  const works: Deferred<void>[] = [];
  const runs = new SideBySide(4);
  const begin = async (count: number) => {
    await runs.room(count);
    for (let n = 0; n < count; n++)
      runs.begin(() => {
        const work = deferred();
        works.push(work);
        return work.promise;
      });
  };
  const beginning = (async () => {
    for (let n = 0; n < 4; n++) await begin(2);
    await runs.ended();
  })();
  await settled();
  expect(works).toHaveLength(4);
  works[1]?.resolve();
  await settled();
  expect(works).toHaveLength(4);
  works[2]?.resolve();
  await settled();
  expect(works).toHaveLength(6);
  works[0]?.resolve();
  works[3]?.resolve();
  await settled();
  expect(works).toHaveLength(8);
  let ended = false;
  void beginning.then(() => {
    ended = true;
  });
  for (const work of works.slice(4, 7)) work.resolve();
  await settled();
  expect(ended).toBe(false);
  works[7]?.resolve();
  await beginning;
});

test("more than may be done at once begin when nothing else is under way", async () => {
  const runs = new SideBySide(1);
  const work = deferred();
  runs.begin(() => work.promise);
  let room = false;
  const waiting = runs.room(2).then(() => {
    room = true;
  });
  await settled();
  expect(room).toBe(false);
  work.resolve();
  await waiting;
});

test("of what fails side by side the first failure is told when all has ended, and the rest is done", async () => {
  const runs = new SideBySide(1);
  let done = 0;
  runs.begin(() => Promise.reject(new Error("first")));
  runs.begin(() => Promise.reject(new Error("second")));
  runs.begin(async () => void done++);
  await expect(runs.ended()).rejects.toThrow("first");
  expect(done).toBe(1);
});
