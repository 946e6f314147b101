import { join } from "node:path";
import type { Session, Troupe } from "troupe";
import { expect, test } from "vitest";
import { PATIENT, plugin, RESIDENT, startTroupe, tempFolder } from "../../support/runtime.js";

const NOTES = new URL("../../../dist/examples/plugins/notes.js", import.meta.url);

/** What the main thread was sent while `act` ran, without the answers to the two questions for statistics. */
async function told(troupe: Troupe, act: () => Promise<unknown>): Promise<{ lane: number; control: number }> {
  const before = (await troupe.stats()).mainMessages;
  await act();
  const after = (await troupe.stats()).mainMessages;
  const asking = (await troupe.stats()).workers.length + 1;
  return { lane: after.lane - before.lane, control: after.control - before.control - asking };
}

/** A session on each of two session workers. */
async function twoSessions(troupe: Troupe): Promise<[Session, Session]> {
  const first = await troupe.session("first");
  const counts = async () => (await troupe.stats()).workers.map((worker) => worker.sessions);
  for (let n = 0; n < 50; n++) {
    const other = await troupe.session(`other-${n}`);
    if ((await counts()).every((count) => count > 0)) return [first, other];
  }
  throw new Error("All sessions are on one worker.");
}

test("a session worker's first call of a plugin opens the lane between them, and no later one does", async () => {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 2, plugins: [{ module: NOTES, ...PATIENT }] });
  const [a, b] = await twoSessions(troupe);
  const add = (session: Session) => told(troupe, () => session.command("notes.add", { text: "milk" }));
  const withLane = await add(a);
  const without = await add(a);
  expect([withLane.lane - without.lane, withLane.control - without.control]).toEqual([1, 2]);
  expect(await add(a)).toEqual(without);
  expect(await add(b)).toEqual(withLane);
  expect(await add(b)).toEqual(without);
});

test("calls that wait for a lane are made when the plugin's thread dies before there is one", async () => {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [{ module: NOTES, ...PATIENT }] });
  const sessions = await Promise.all(Array.from({ length: 4 }, (_, n) => troupe.session(`s${n}`)));
  const adding = sessions.map((session) => session.command("notes.add", { text: "milk" }));
  await troupe.kill({ plugin: "example.notes" });
  await Promise.all(adding);
  const listed = await Promise.all(sessions.map((session) => session.query("notes.list")));
  expect(listed).toMatchObject(sessions.map(() => [{ text: "milk" }]));
  expect((await troupe.stats()).plugins).toMatchObject([{ restarts: 1 }]);
});

test("a plugin whose thread was blocked before anybody called it is replaced when somebody does", async () => {
  const marker = join(await tempFolder(), "was-here");
  const module = plugin("blocks-once");
  const troupe = await startTroupe({
    sessionWorkers: 1,
    plugins: [{ module, options: { marker }, permissions: "all", blockedMs: 500 }],
  });
  const session = await troupe.session("s");
  expect(await session.query("test.answer")).toBe("here");
  expect((await troupe.stats()).plugins).toMatchObject([{ restarts: 1 }]);
});

test("a session worker that is started again opens its own lanes", async () => {
  const troupe = await startTroupe({ ...RESIDENT, sessionWorkers: 1, plugins: [{ module: NOTES, ...PATIENT }] });
  const session = await troupe.session("s");
  await session.command("notes.add", { text: "milk" });
  await troupe.kill({ sessionWorker: 0 });
  await session.command("notes.add", { text: "bread" });
  expect((await troupe.stats()).plugins).toMatchObject([{ restarts: 0 }]);
});
