import { scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { PATIENT, plugin, RESIDENT, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

/** What hooks change behind the last write is stored before whoever asked is answered. */
const start = (tier: "inline" | "worker", options: TroupeOptions = {}) =>
  startTroupe({
    ...RESIDENT,
    sessionWorkers: 1,
    model: scriptedModel([{ text: "{input}" }]),
    plugins: [{ module: plugin("late"), tier, ...PATIENT }],
    ...options,
  });

describe.each(["inline", "worker"] as const)("a plugin on tier %s", (tier) => {
  test("loses nothing of what it changed when its session's worker is killed right after the answer", async () => {
    const troupe = await start(tier, { store: { path: await tempFolder() } });
    const session = await troupe.session("s");
    const noted = () => session.query("late.noted");
    await session.turn("one");
    await troupe.kill({ sessionWorker: 0 });
    expect(await noted()).toMatchObject({ noted: ["stored one"] });
    await session.configure({ instructions: "Be brief." });
    await troupe.kill({ sessionWorker: 0 });
    expect(await noted()).toMatchObject({ noted: ["stored one", "configuring", "configured"] });
    await session.query("late.ask");
    await troupe.kill({ sessionWorker: 0 });
    expect(await noted()).toMatchObject({ noted: ["stored one", "configuring", "configured", "asked"] });
    expect((await refusalOf(session.turn("refuse this"))).code).toBe("plugin_prepare_turn");
    await troupe.kill({ sessionWorker: 0 });
    expect(await noted()).toMatchObject({
      noted: ["stored one", "configuring", "configured", "asked", "refuse this"],
    });
  });

  test("keeps what it changed when its session was brought back, whatever comes next", async () => {
    const module = new URL(`${plugin("late")}?counting=1`);
    const troupe = await start(tier, { plugins: [{ module, tier, ...PATIENT }], store: { path: await tempFolder() } });
    const session = await troupe.session("s");
    await session.turn("quiet");
    for (let n = 0; n < 2; n++) {
      await troupe.kill({ sessionWorker: 0 });
      await session.info();
    }
    expect(await session.query("late.noted")).toEqual({ noted: [], returns: 2 });
  });

  test("costs a commit more where it changed something, and none where it did not", async () => {
    const troupe = await start(tier);
    const session = await troupe.session("s");
    const commits = async (act: () => PromiseLike<unknown>) => {
      const { store: before, hookMessages } = await troupe.stats();
      await act();
      const after = await troupe.stats();
      const [sent, records] = [after.hookMessages.sent - hookMessages.sent, after.store.records - before.records];
      return { commits: after.store.commits - before.commits, records, sent };
    };
    const trips = (count: number) => (tier === "worker" ? count : 0);
    await session.turn("one");
    // Head and messages; head and state.
    expect(await commits(() => session.turn("two"))).toEqual({ commits: 2, records: 4, sent: trips(3) });
    expect(await commits(() => session.turn("quiet"))).toEqual({ commits: 1, records: 2, sent: trips(3) });
    expect((await commits(() => session.query("late.noted"))).commits).toBe(0);
    expect((await commits(() => session.query("late.ask"))).commits).toBe(1);
  });

  test("whose change cannot be stored has an issue with a turn that is stored, and goes on from what is", async () => {
    const troupe = await start(tier, {
      model: scriptedModel({ turns: [[{ text: "short" }], [{ text: "big" }], [{ text: "quiet" }]] }),
      store: { path: await tempFolder(), commitBudget: { bytes: 3_000, nodes: 100 } },
    });
    const session = await troupe.session("s");
    expect((await session.turn("one")).issues).toEqual([]);
    const { issues, outcome } = await session.turn("two");
    expect(outcome.type).toBe("finished");
    expect(issues).toMatchObject([{ code: "plugin_state_not_stored" }]);
    expect((await session.turn("three")).turnIndex).toBe(3);
    expect(await session.query("late.noted")).toMatchObject({ noted: ["stored short"] });
  });
});
