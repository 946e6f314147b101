import { join } from "node:path";
import type { TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { fixture, PATIENT, RESIDENT, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const NEIGHBOURS = ["a", "b", "c", "d"];

/** A plugin that has the ports of its thread, sessions that share it, and one that has it do harm. */
async function stolen(options: TroupeOptions = {}) {
  const troupe = await startTroupe({
    ...RESIDENT,
    sessionWorkers: 1,
    plugins: [{ module: fixture("hostile/steals-ports.mjs"), ...PATIENT }],
    ...options,
  });
  const bad = await troupe.session("bad");
  const good = await Promise.all(NEIGHBOURS.map((id) => troupe.session(id)));
  const turns = async () =>
    (await Promise.all(good.map((session) => session.turn("hi")))).map(({ outcome }) => outcome.type);
  await bad.turn("hi");
  expect(await turns()).toEqual(NEIGHBOURS.map(() => "finished"));
  // Otherwise the attack is none.
  expect(await bad.query("steals.ports")).toBeGreaterThan(1);
  return { troupe, bad, good, turns };
}

test("a plugin that closes the ports of its thread has the thread replaced; its neighbours' turns finish with every count right, and a next turn works", async () => {
  const { troupe, bad, good, turns } = await stolen();
  // It closes them again when its call is made again, and then has no answer.
  expect((await refusalOf(bad.turn("close"))).cause).toMatchObject({
    code: "worker_lost",
    details: { pluginId: "test.steals-ports" },
  });
  expect(await turns()).toEqual(NEIGHBOURS.map(() => "finished"));
  await until("its thread is replaced", async () => ((await troupe.stats()).plugins[0]?.restarts ?? 0) > 0);
  expect(await Promise.all(good.map((session) => session.query("steals.turns")))).toEqual(NEIGHBOURS.map(() => 2));
  expect((await bad.turn("hi")).outcome.type).toBe("finished");
});

test.each(["no bytes", "no record", "no capture"])(
  "a plugin that forges the state it is asked for (%s) has that of its last answer stored, and every session opens again",
  async (shape) => {
    const store = { path: join(await tempFolder(), "store") };
    const first = await stolen({ store });
    const { outcome, issues } = await first.bad.turn(shape);
    expect(outcome.type).toBe("finished");
    expect(issues).toMatchObject([{ code: "plugin_capture_failed" }]);
    expect(await first.turns()).toEqual(NEIGHBOURS.map(() => "finished"));
    await first.troupe.close();
    const second = await startTroupe({
      sessionWorkers: 1,
      store,
      plugins: [{ module: fixture("hostile/steals-ports.mjs") }],
    });
    const counts = ["bad", ...NEIGHBOURS].map(async (id) => (await second.session(id)).query("steals.turns"));
    // What the plugin's last answer left is known without the capture.
    expect(await Promise.all(counts)).toEqual([2, ...NEIGHBOURS.map(() => 2)]);
    expect((await (await second.session("bad")).turn("hi")).outcome.type).toBe("finished");
  },
);

test("a hook that enqueues 32,000 messages is refused with their number, its neighbours' turns beside it finish, and a next turn works", async () => {
  const { bad, turns } = await stolen();
  const beside = turns();
  expect((await refusalOf(bad.turn("enqueue"))).cause).toMatchObject({
    code: "invalid_hook_answer",
    message: expect.stringContaining("32000"),
  });
  expect(await beside).toEqual(NEIGHBOURS.map(() => "finished"));
  expect((await bad.turn("hi")).outcome.type).toBe("finished");
  expect((await bad.view()).messageCount).toBe(4);
});
