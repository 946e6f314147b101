import { expect, test } from "vitest";
import { PATIENT, plugin, RESIDENT, startTroupe } from "../../support/runtime.js";

const GOOD = ["a", "b", "c", "d"];

test.each([
  "mapGet",
  "arrayPush",
  "arrayIterator",
  "nextTick",
  "objectThen",
  "promiseThen",
  "postMessage",
  "objectKeys",
  "atomics",
])(
  "a plugin that replaces %s on its thread: its neighbours' turns all finish, with every count right",
  async (deed) => {
    const troupe = await startTroupe({
      ...RESIDENT,
      sessionWorkers: 1,
      plugins: [{ module: plugin("patches"), deadlineMs: 20_000, ...PATIENT }],
    });
    const good = await Promise.all(GOOD.map((id) => troupe.session(id)));
    const bad = await troupe.session("bad");
    await Promise.all([bad, ...good].map((session) => session.turn("hi")));
    const turns = [bad.turn(deed), ...good.map((session) => session.turn("hi"))];
    const [, ...settled] = await Promise.allSettled(turns);
    const ends = settled.map((each) => (each.status === "fulfilled" ? "finished" : String(each.reason)));
    expect(ends).toEqual(GOOD.map(() => "finished"));
    for (let round = 0; round < 3; round++) await Promise.all(good.map((session) => session.turn("hi again")));
    const counted = await Promise.all(good.map((session) => session.query("test.patches.turns")));
    expect(counted).toEqual(GOOD.map(() => 5));
    expect((await bad.turn("hi")).outcome.type).toBe("finished");
  },
);
