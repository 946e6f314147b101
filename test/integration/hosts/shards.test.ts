import type { PluginEntry, Session } from "troupe";
import { expect, test } from "vitest";
import { deferred } from "../../../src/async/index.js";
import { EMPTY_OBJECT, fixture, PATIENT, plugin, RESIDENT, startTroupe, until } from "../../support/runtime.js";

interface Counts {
  readonly begun: number;
  readonly ended: number;
  readonly thread: number;
}

/** A runtime with a plugin that works in each turn, and a tool that holds a turn in its middle until the gate is open. */
async function working(entry: Partial<PluginEntry> = {}) {
  const gate = deferred();
  let held = 0;
  const wait = {
    description: "Waits",
    inputSchema: EMPTY_OBJECT,
    execute: async () => {
      held++;
      await gate.promise;
      return "waited";
    },
  };
  const troupe = await startTroupe({
    ...RESIDENT,
    sessionWorkers: 2,
    plugins: [{ module: plugin("works"), ...PATIENT, deadlineMs: 60_000, ...entry }],
    model: fixture("models/obeys.mjs"),
    tools: { wait },
  });
  const open = (name: string, count: number) =>
    Promise.all(Array.from({ length: count }, (_, n) => troupe.session(`${name}${n}`)));
  const stats = async () => (await troupe.stats()).plugins[0] as { threads: number; restarts: number };
  return { gate, held: () => held, stats, open };
}

const countsOf = (sessions: readonly Session[]) =>
  Promise.all(sessions.map(async (session) => (await session.query("works.counts")) as unknown as Counts));
const threadsOf = (counts: readonly Counts[]) => new Set(counts.map(({ thread }) => thread)).size;

/** Every session has one turn behind the other until `isEnough`; answers how many each had. */
async function keepBusy(sessions: readonly Session[], isEnough: () => Promise<boolean>): Promise<number[]> {
  let enough = false;
  const turns = sessions.map(async (session) => {
    let had = 0;
    for (; !enough; had++) await session.turn("say done");
    return had;
  });
  try {
    await until("the plugin has had enough work", isEnough);
  } finally {
    enough = true;
  }
  return Promise.all(turns);
}

test("a busy plugin gets a second thread and gives it back when it is idle; every session's count is right, also of those that move in the middle of a turn", async () => {
  const { gate, held, stats, open } = await working();
  const [busy, middle] = await Promise.all([open("busy", 32), open("middle", 8)]);
  const inTheMiddle = middle.map((session) => session.turn("call wait\nsay done"));
  await until("eight turns are in their middle", () => held() === middle.length);
  const turns = await keepBusy(busy, async () => (await stats()).threads === 2);
  const counts = await countsOf(busy);
  expect(counts.map(({ begun }) => begun)).toEqual(turns);
  expect(counts.map(({ ended }) => ended)).toEqual(turns);
  expect(threadsOf(counts)).toBe(2);

  gate.resolve();
  await Promise.all(inTheMiddle);
  const moved = await countsOf(middle);
  expect(moved.map(({ begun, ended }) => [begun, ended])).toEqual(middle.map(() => [1, 1]));
  expect(threadsOf(moved)).toBe(2);

  // It must have been idle for twenty seconds, which is as long as one such wait.
  let looks = 0;
  await until("ten seconds are over", () => ++looks === 900);
  await until("the second thread has ended", async () => (await stats()).threads === 1);
  const after = await countsOf([...busy, ...middle]);
  expect(after.map(({ begun }) => begun)).toEqual([...turns, ...middle.map(() => 1)]);
  expect(threadsOf(after)).toBe(1);
  expect((await stats()).restarts).toBe(0);
});

test("a plugin with one shard keeps one thread however busy it is", async () => {
  const { stats, open } = await working({ shards: 1 });
  const busy = await open("busy", 16);
  let asked = 0;
  const turns = await keepBusy(busy, async () => {
    expect((await stats()).threads).toBe(1);
    return ++asked === 200;
  });
  const counts = await countsOf(busy);
  expect(counts.map(({ begun }) => begun)).toEqual(turns);
  expect(threadsOf(counts)).toBe(1);
});
