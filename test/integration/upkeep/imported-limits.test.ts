import { scriptedModel } from "troupe";
import { expect, test } from "vitest";
import { collect, plugin, startTroupe } from "../../support/runtime.js";

const model = scriptedModel({ turns: [[{ text: "done" }]] });
const counter = (optionalInChildren: boolean) => ({
  sessionWorkers: 1,
  model,
  plugins: [{ module: plugin("counter"), tier: "worker" as const, optionalInChildren }],
});

test("an imported session has a plugin that its file leaves out, unless this host made it optional", async () => {
  const from = await startTroupe(counter(true));
  const parent = await from.session("parent");
  await parent.turn("hi");
  await (await parent.fork({ id: "child", authority: { withoutPlugins: ["test.counter"] } })).turn("hi");
  const file = await from.exportSession("child");
  const watched = async (optional: boolean) => {
    const to = await startTroupe(counter(optional));
    await to.importSession(file);
    const activities = await collect((await to.session("child")).turn("hi"));
    return activities.some((activity) => activity.type === "plugin_event" && activity.pluginId === "test.counter");
  };
  expect(await watched(false)).toBe(true);
  expect(await watched(true)).toBe(false);
});

test("an imported session has the budget of this host, unless its own is narrower", async () => {
  const from = await startTroupe({ sessionWorkers: 1, model });
  const session = await from.session("s");
  await session.turn("hi");
  const to = await startTroupe({ sessionWorkers: 1, model, budget: { maxTokens: 1_000 } });
  for (const [id, budget, expected] of [
    ["none", null, 1_000],
    ["wider", { maxTokens: 5_000 }, 1_000],
    ["narrower", { maxTokens: 500 }, 500],
  ] as const) {
    await session.setBudget(budget);
    await to.importSession(await from.exportSession("s"), { id });
    expect(await (await to.session(id)).spending()).toMatchObject({ budget: { maxTokens: expected } });
  }
});
