import { expect, test } from "vitest";
import { type Deferred, deferred } from "../../../src/async/index.js";
import { SideBySide } from "../../../src/runtime/schedules/side-by-side.js";

const settled = async () => {
  for (let n = 0; n < 10; n++) await Promise.resolve();
};

test("things are done side by side, no more at once than may be, and the next begins as soon as one has ended", async () => {
  const works: Deferred<void>[] = [];
  const runs = new SideBySide(2);
  const begin = () =>
    runs.begin(() => {
      const work = deferred();
      works.push(work);
      return work.promise;
    });
  const beginning = (async () => {
    for (let n = 0; n < 4; n++) await begin();
    await runs.ended();
  })();
  await settled();
  expect(works).toHaveLength(2);
  works[1]?.resolve();
  await settled();
  expect(works).toHaveLength(3);
  works[0]?.resolve();
  works[2]?.resolve();
  await settled();
  expect(works).toHaveLength(4);
  let ended = false;
  void beginning.then(() => {
    ended = true;
  });
  await settled();
  expect(ended).toBe(false);
  works[3]?.resolve();
  await beginning;
});

test("of what fails side by side the first failure is told when all has ended, and the rest is done", async () => {
  const runs = new SideBySide(1);
  let done = 0;
  await runs.begin(() => Promise.reject(new Error("first")));
  await runs.begin(() => Promise.reject(new Error("second")));
  await runs.begin(async () => void done++);
  await expect(runs.ended()).rejects.toThrow("first");
  expect(done).toBe(1);
});
