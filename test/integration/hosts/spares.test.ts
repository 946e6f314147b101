import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { PluginEntry } from "troupe";
import { expect, test } from "vitest";
import { plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

async function loading(entry: Partial<PluginEntry> = {}) {
  const file = join(await tempFolder(), "loads");
  const module = `${plugin("loads")}?file=${encodeURIComponent(file)}`;
  const permissions = { read: [file], write: [file] };
  const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module, permissions, ...entry }] });
  const loads = async () => (await readFile(file, "utf8")).length;
  const restarts = async () => (await troupe.stats()).plugins[0]?.restarts;
  return { session: await troupe.session("s"), loads, restarts };
}

test("a plugin whose call holds its thread for long has the next thread loaded before that one is given up", async () => {
  // The call ends once its plugin is loaded a second time; were it not, it would be given up.
  const { session, restarts } = await loading({ blockedMs: 3_000, deadlineMs: 60_000 });
  expect((await session.turn("until 2")).outcome.type).toBe("finished");
  expect(await restarts()).toBe(0);
});

test("a plugin whose thread has died always has the next one loaded, and the second death takes that", async () => {
  const { session, loads, restarts } = await loading();
  await session.turn("hi");
  expect(await loads()).toBe(1);
  for (const death of [1, 2]) {
    await refusalOf(session.turn("exit"));
    // The one that took over, and the one behind it.
    await until("the next one is loaded", async () => (await loads()) === 2 + death);
    expect(await restarts()).toBe(death);
  }
});
