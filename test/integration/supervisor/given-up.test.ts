import { readFile, writeFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { listening } from "../../support/listening.js";
import { fixture, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

/** Two session workers with sessions on each; `die` has the first one's thread throw while it has nothing to do. */
async function twoWorkers() {
  const folder = await tempFolder();
  const model = new URL(`${fixture("models/dies-idle.mjs")}?folder=${encodeURIComponent(folder)}`);
  const { onEvent, of } = listening();
  const troupe = await startTroupe({ sessionWorkers: 2, model, onEvent });
  const sessions = await Promise.all(Array.from({ length: 8 }, (_, n) => troupe.session(`s${n}`)));
  const [first] = (await troupe.stats()).workers;
  const infos = await Promise.all(sessions.map((session) => session.info()));
  const on = (isFirst: boolean) => sessions.filter((_, n) => (infos[n]?.threadId === first?.threadId) === isFirst);
  const worker = () =>
    troupe.stats().then(
      ({ workers }) => workers[0],
      () => undefined,
    );
  const die = async () => {
    const before = await worker();
    const loads = (await readFile(`${folder}/loads`, "utf8")).length;
    // The second load was the other worker's.
    await writeFile(`${folder}/die-${loads === 2 ? 1 : loads}`, "");
    await until("its thread is another one, or none", async () => {
      const after = await worker();
      return after !== undefined && after.threadId !== before?.threadId;
    });
  };
  return { troupe, worker, die, of, own: on(true), others: on(false) };
}

test("a session worker whose thread dies again and again while nothing is asked of it is given up: its sessions are refused with the cause, and other workers' go on", async () => {
  const { troupe, worker, die, of, own, others } = await twoWorkers();
  expect([own.length > 0, others.length > 0]).toEqual([true, true]);
  // On a slow machine the first deaths may be too long ago when the fourth one comes.
  while ((await worker())?.threadId !== -1) await die();
  expect((await worker())?.restarts).toBeGreaterThanOrEqual(3);
  const refused = {
    code: "session_worker_given_up",
    message: expect.stringContaining("thrown by a timer of the model"),
    details: { deaths: 4, owner: { kind: "model" } },
  };
  for (const session of own) expect(await refusalOf(session.turn("hi"))).toMatchObject(refused);
  expect(await refusalOf(troupe.session(own[0]?.id as string))).toMatchObject(refused);
  expect((await Promise.all(others.map((session) => session.turn("hi")))).map(({ text }) => text)).toEqual(
    others.map(() => "alive"),
  );
  await troupe.close();
  expect(of("session_worker_given_up")).toMatchObject([{ thread: "Session worker 0", error: { code: refused.code } }]);
});

test("a session worker that an operator kills again and again is not given up", async () => {
  const { troupe, worker, own } = await twoWorkers();
  for (let kills = 1; kills <= 6; kills++) {
    await troupe.kill({ sessionWorker: 0 });
    await until("it is back", async () => (await worker())?.restarts === kills);
  }
  expect((await own[0]?.turn("hi"))?.text).toBe("alive");
});

test("a session worker that dies again and again of turns that nobody waits for is not given up", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1, model: fixture("floating/model.mjs") });
  for (let deaths = 1; deaths <= 6; deaths++) {
    const session = await troupe.session(`s${deaths}`);
    // The turn may begin, and end its thread, before the receipt has left.
    await session.enqueue("throw in the model").catch(({ code }) => expect(code).toBe("worker_lost"));
    await until("it is back", () =>
      troupe.stats().then(
        ({ workers }) => workers[0]?.restarts === deaths,
        () => false,
      ),
    );
  }
  expect((await (await troupe.session("other")).turn("hi")).text).toBe("You said: hi");
});
