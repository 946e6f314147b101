import { afterEach, beforeEach, expect, test } from "vitest";
import { systemClock } from "../../../dist/src/async/index.js";
import { Statistics } from "../../../dist/src/runtime/observe/stats.js";
import { resolveOptions } from "../../../dist/src/runtime/options/options.js";
import { Crew } from "../../../dist/src/runtime/threads/thread-wiring.js";

// Threads need built JavaScript, so this is tested as built.
const counter = new URL("../../fixtures/plugins/counter.mjs", import.meta.url);
const PHASE = "plugin_hook.before_turn.test.counter";

let crew: Crew;
beforeEach(async () => {
  const options = resolveOptions({ sessionWorkers: 1, plugins: [{ module: counter, tier: "inline" }] }, systemClock);
  const unused = () => expect.unreachable();
  crew = new Crew(options, {
    hub: undefined,
    onActivity: unused,
    onObserved: unused,
    onInspected: unused,
    relay: unused,
    onFull: () => undefined,
    onStarted: async () => undefined,
    onStoreLost: unused,
  });
  await crew.start();
});
afterEach(() => crew.close({ drainMs: 100 }));

const turn = (key: number) => crew.worker(0).lane?.call("turn", [key, "s", "hi", false, {}]);

test("a worker sends each histogram once, and it goes on counting where it was sent to", async () => {
  await turn(1);
  const service = await crew.worker(0).service();
  const { histograms } = await service.stats({ known: 0 });
  const [, first] = histograms.find(([name]) => name === PHASE) ?? [];
  expect(first?.count).toBe(1);

  await turn(2);
  const again = await service.stats({ known: histograms.length });
  expect(again.histograms).toHaveLength(0);
  expect(first?.count).toBe(2);
});

test("statistics keep a thread's histograms as long as it is there", async () => {
  const statistics = new Statistics(crew);
  const count = async () =>
    (await statistics.read({ turns: { asked: 0, finished: 0, refused: 0 }, forks: 0 })).hooks[PHASE]?.count;
  await turn(1);
  expect(await count()).toBe(1);
  await turn(2);
  expect(await Promise.all([count(), count()])).toEqual([2, 2]);

  await crew.worker(0).kill();
  await crew.worker(0).ready();
  await turn(3);
  expect(await count()).toBe(1);
});
