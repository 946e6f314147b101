import { expect, test } from "vitest";
import { plugin, RESIDENT, refusalOf, startTroupe, until } from "../../support/runtime.js";

const OFFENDS = plugin("offends");

/** A runtime whose plugin so many sessions have made exit, once each. */
async function offendedBy(
  sessions: number,
  { innocent = [], ...entry }: { readonly optional?: boolean; readonly innocent?: readonly string[] } = {},
) {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [{ module: OFFENDS, ...entry }] });
  for (const id of innocent) await (await troupe.session(id)).turn("hi");
  for (let n = 0; n < sessions; n++) {
    const bad = await troupe.session(`bad${n}`);
    await bad.turn("exit").then(undefined, () => undefined);
  }
  return troupe;
}

test("a plugin that seven sessions have ended is there for an eighth", async () => {
  const troupe = await offendedBy(7);
  expect((await (await troupe.session("good")).turn("hi")).outcome.type).toBe("finished");
});

test("a plugin that eight sessions have ended is there for eight others that have not", async () => {
  const innocent = ["a", "b", "c", "d", "e", "f", "g", "h"];
  const troupe = await offendedBy(8, { innocent });
  for (let round = 0; round < 2; round++) {
    for (const id of innocent) {
      const { outcome } = await (await troupe.session(id)).turn("hi");
      expect(outcome.type).toBe("finished");
    }
  }
});

test("a plugin that eight sessions have ended is given up for all as plugin_unavailable, until it is restarted", async () => {
  const troupe = await offendedBy(8);
  const good = await troupe.session("good");
  // The main thread gives it up and tells the session worker: a turn may come in between.
  await until("it is given up", () =>
    good.turn("hi").then(
      () => false,
      ({ cause }) => (cause as { code?: string }).code === "plugin_unavailable",
    ),
  );
  await troupe.restartPlugin("test.offends");
  expect((await good.turn("hi")).outcome.type).toBe("finished");
});

test("an optional plugin that eight sessions have ended is passed over, and each turn says so", async () => {
  const troupe = await offendedBy(8, { optional: true });
  const good = await troupe.session("good");
  await until("it is switched off", async () => (await good.turn("hi")).issues.length > 0);
  const { outcome, issues } = await good.turn("hi");
  expect(outcome.type).toBe("finished");
  expect(issues).toMatchObject([{ code: "plugin_unavailable" }]);
});

/** A runtime whose plugin lets so many calls wait for ever, at the same time, each for its own session. */
async function hungBy(sessions: number) {
  const troupe = await startTroupe({
    ...RESIDENT,
    sessionWorkers: 1,
    plugins: [{ module: plugin("hangs"), deadlineMs: 300 }],
  });
  const hanging = await Promise.all(Array.from({ length: sessions }, (_, n) => troupe.session(`s${n}`)));
  const refused = await Promise.all(hanging.map((session) => refusalOf(session.turn("hang"))));
  expect(refused.map(({ cause }) => (cause as { code: string }).code)).toEqual(hanging.map(() => "hook_timeout"));
  const restarts = async () => (await troupe.stats()).plugins[0]?.restarts;
  return { troupe, restarts, session: await troupe.session("next") };
}

test("a plugin that lets six deadlines pass without one answer has its thread replaced, though nothing holds it, and a next turn works", async () => {
  const { session, restarts } = await hungBy(6);
  await until("its thread is replaced", async () => (await restarts()) === 1);
  // On the new thread nobody has asked for anything.
  expect(await session.query("hangs.asked")).toBe(0);
  await until("its breaker lets a call through", () =>
    session.turn("hi").then(
      () => true,
      () => false,
    ),
  );
});

test("a plugin that lets five deadlines pass and then answers keeps its thread", async () => {
  const { session, restarts } = await hungBy(5);
  expect(await session.query("hangs.asked")).toBe(5);
  expect(await restarts()).toBe(0);
});

test("a plugin's thread is judged from outside: no timer is set there for it, however often it is called", async () => {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [{ module: plugin("counts-timers") }] });
  const session = await troupe.session("s");
  for (let turn = 0; turn < 3; turn++) {
    await session.turn("hi");
    expect(await session.query("counts-timers.set")).toBe(0);
  }
});
