import { availableParallelism } from "node:os";
import type { PluginEntry } from "troupe";
import { expect, onTestFinished, test } from "vitest";
import { fixture, PATIENT, RESIDENT, startTroupe } from "../../support/runtime.js";

/** So many that some are described together, whatever the cores. */
const MANY = Math.max(20, 8 * availableParallelism());
const ids = Array.from({ length: MANY }, (_, n) => `test.n${n}`);

/** Lazy plugins of one package; the one in their midst does this while it is imported. */
function many(does = ""): PluginEntry[] {
  return ids.map((id, n) => ({
    module: new URL(`${fixture("plugins/described.mjs")}?id=${id}&does=${n === MANY / 2 ? does : ""}`),
    lazy: true,
    ...(does === "never ends" && n === MANY / 2 && { loadMs: 1_000 }),
    ...PATIENT,
  }));
}

/** How many threads this process starts until the test ends. */
function countThreads(): () => number {
  let count = 0;
  const counts = () => {
    count++;
  };
  process.on("worker", counts);
  onTestFinished(() => void process.off("worker", counts));
  return () => count;
}

test("plugins of one package that keep no thread are described on a few, and each runs on one of its own", async () => {
  const threads = countThreads();
  const troupe = await startTroupe({ sessionWorkers: 1, plugins: many() });
  expect((await troupe.stats()).plugins.map(({ id, threadId }) => [id, threadId])).toEqual(ids.map((id) => [id, -1]));
  // The store, the session worker, and one thread for several plugins.
  const atOnce = 4 * availableParallelism();
  expect(threads()).toBe(2 + Math.ceil(MANY / Math.ceil(MANY / atOnce)));
  expect(threads()).toBeLessThanOrEqual(2 + MANY / 2);
  const session = await troupe.session("a");
  for (const id of ids.slice(-4)) expect(await session.query(`${id}.others`)).toEqual([]);
});

test("of many plugins all but the first sixteen have no thread until they are called", async () => {
  const plugins = many()
    .slice(0, 18)
    .map((entry) => ({ ...entry, lazy: false }));
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins });
  const last = async () => (await troupe.stats()).plugins.slice(16).map(({ threadId }) => threadId > 0);
  expect(await last()).toEqual([false, false]);
  await (await troupe.session("a")).query(`${ids[17]}.others`);
  expect(await last()).toEqual([false, true]);
});

test("a plugin that replaces functions while it is imported does not change what its neighbours say they are", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1, plugins: many("patches") });
  expect((await troupe.stats()).plugins.map(({ id }) => id)).toEqual(ids);
});

test.each([
  ["throws", "plugin_module_invalid"],
  ["exits", "worker_lost"],
  ["never ends", "plugin_load_timeout"],
])("of many plugins of one package the one that %s while it is imported is named", async (does, code) => {
  const id = ids[MANY / 2] as string;
  const refused = await startTroupe({ sessionWorkers: 1, plugins: many(does) }).catch((error: unknown) => error);
  expect(refused).toMatchObject({ code, message: expect.stringContaining(`?id=${id}&`) });
  for (const other of ids) if (other !== id) expect((refused as Error).message).not.toContain(`?id=${other}&`);
});
