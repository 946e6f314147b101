import type { Session, Troupe, TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { listening } from "../../support/listening.js";
import { fixture, PATIENT, RESIDENT, refusalOf, startTroupe, until } from "../../support/runtime.js";

const HOARDS = { module: fixture("hostile/hoards.mjs"), externalMb: 64, ...PATIENT };

async function twoSessions(
  more: Partial<TroupeOptions> = {},
): Promise<{ troupe: Troupe; attacker: Session; neighbour: Session }> {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [HOARDS], ...more });
  return { troupe, attacker: await troupe.session("attacker"), neighbour: await troupe.session("neighbour") };
}

const restartsOf = async (troupe: Troupe) => (await troupe.stats()).plugins[0]?.restarts ?? 0;

test.each([
  ["buffers", "plugin_out_of_memory"],
  ["timers", "plugin_too_many_timers"],
])(
  "a call that leaves its thread with too many %s is refused with a reason, and its neighbour's turns all finish",
  async (deed, code) => {
    const { attacker, neighbour } = await twoSessions();
    expect((await refusalOf(attacker.turn(deed))).cause).toMatchObject({ code });
    for (let turn = 0; turn < 3; turn++) expect((await neighbour.turn("hi")).outcome.type).toBe("finished");
    expect((await attacker.turn("hi")).outcome.type).toBe("finished");
  },
);

test("of many hooks that cross together the one that hoards buffers is refused, and all others' turns finish", async () => {
  const { troupe, attacker, neighbour } = await twoSessions();
  const others = await Promise.all(Array.from({ length: 20 }, (_, n) => troupe.session(`other-${n}`)));
  await Promise.all([attacker, neighbour, ...others].map((session) => session.turn("hi")));
  const before = others.slice(0, 10).map((session) => session.turn("hi"));
  const refused = refusalOf(attacker.turn("buffers"));
  const after = [neighbour, ...others.slice(10)].map((session) => session.turn("hi"));
  expect((await refused).cause).toMatchObject({ code: "plugin_out_of_memory", details: { sessionId: "attacker" } });
  for (const { outcome } of await Promise.all([...before, ...after])) expect(outcome.type).toBe("finished");
  for (const session of others) expect(await session.query("hoards.turns")).toBe(2);
});

test("a plugin that hoards buffers behind its answers is found with a later call, and its neighbour's turns all finish", async () => {
  const { troupe, attacker, neighbour } = await twoSessions();
  await neighbour.turn("hi");
  await attacker.turn("buffers later");
  let turns = 1;
  await until("its thread is replaced", async () => {
    expect((await neighbour.turn("hi")).outcome.type).toBe("finished");
    turns++;
    return (await restartsOf(troupe)) > 0;
  });
  expect(await neighbour.query("hoards.turns")).toBe(turns);
  // Whoever came behind the hoard is no suspect: no call was made again in quarantine, which would be a second thread.
  expect((await troupe.stats()).plugins[0]?.threads).toBe(1);
});

test("a call that hoards buffers behind its awaits is found also when no other comes to its thread", async () => {
  const plugins = [{ ...HOARDS, deadlineMs: 6_000 }];
  const { troupe, attacker } = await twoSessions({ plugins });
  expect((await refusalOf(attacker.turn("more and more"))).cause).toMatchObject({ code: "plugin_out_of_memory" });
  expect((await attacker.turn("hi")).outcome.type).toBe("finished");
  expect((await troupe.stats()).plugins[0]?.restarts).toBeGreaterThan(0);
});

test("a plugin that hoards buffers while nobody calls it is found when the process is short of memory", async () => {
  const heard: unknown[] = [];
  const listener = (warning: Error) => void heard.push({ ...warning });
  process.on("warning", listener);
  const { onEvent, events } = listening();
  try {
    // The test's own process uses more than that.
    const { troupe, attacker, neighbour } = await twoSessions({ memoryLimitMb: 16, onEvent });
    await neighbour.turn("hi");
    // Behind the capture of its state, which is the last call of its turn.
    await attacker.turn("buffers at once, much later");
    await until("its thread is replaced", async () => (await restartsOf(troupe)) > 0);
    await until("the host is warned of both", () => heard.length >= 2);
    expect(heard).toMatchObject([
      { code: "memory_high", details: { limitMb: 16 } },
      { code: "worker_lost", details: { reason: "external" } },
    ]);
    await until("its thread's end is told", () => events.some(({ type }) => type === "plugin_lost"));
    expect(events.filter(({ type }) => type === "memory_high" || type === "plugin_lost")).toMatchObject([
      { type: "memory_high", usedMb: expect.any(Number), limitMb: 16 },
      { type: "plugin_lost", plugin: "test.hoards", reason: "external", held: false },
    ]);
    expect((await neighbour.turn("hi")).outcome.type).toBe("finished");
    expect(await neighbour.query("hoards.turns")).toBe(2);
  } finally {
    process.off("warning", listener);
  }
});

test("a plugin that uses many buffers and keeps none of them is left alone", async () => {
  const { troupe, attacker } = await twoSessions();
  for (let turn = 0; turn < 5; turn++) expect((await attacker.turn("waste")).outcome.type).toBe("finished");
  expect(await restartsOf(troupe)).toBe(0);
});
