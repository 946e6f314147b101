import { createTroupe, pendingTool, type ToolContext, type Troupe } from "troupe";
import { describe, expect, test } from "vitest";
import { EMPTY_OBJECT, firstToolValue, fixture, plugin, refusalOf, startTroupe, until } from "../../support/runtime.js";

/** How full a session worker's heap is that has done nothing. */
async function emptyShare(): Promise<number> {
  const troupe = await createTroupe({ sessionWorkers: 1 });
  const { workers } = await troupe.stats();
  await troupe.close();
  return workers[0]?.heapShare ?? 1;
}

/** A runtime whose workers are recycled above four times what an empty one has, and a turn that fills one further. */
async function leaking(sessionWorkers: number): Promise<{ troupe: Troupe; keys: string[] }> {
  const empty = await emptyShare();
  const keys: string[] = [];
  const troupe = await startTroupe({
    sessionWorkers,
    // Its heap is looked at every 25 ms.
    parkAfterMs: 100,
    recycleAtHeapShare: 4 * empty,
    plugins: [{ module: plugin("leaks"), tier: "inline", options: { share: 8 * empty } }],
    model: fixture("models/obeys.mjs"),
    tools: {
      ask: {
        description: "Asks",
        inputSchema: EMPTY_OBJECT,
        execute: (_args: unknown, { completionKey }: ToolContext) => {
          keys.push(completionKey);
          return pendingTool();
        },
      },
    },
  });
  return { troupe, keys };
}

const recycled = async (troupe: Troupe) => (await troupe.stats()).workers.map((worker) => worker.recycled);

describe("a session worker whose heap stays full", () => {
  test("is replaced by itself, once: sessions go over as they are, and a turn that waits finishes on the old thread", async () => {
    const { troupe, keys } = await leaking(2);
    const sessions = await Promise.all(["waits", "s1", "s2", "s3"].map((id) => troupe.session(id)));
    for (const session of sessions) {
      await session.turn("call count");
      await troupe.move(session.id, 0);
    }
    const [waits, ...others] = sessions as [(typeof sessions)[0], ...typeof sessions];
    const waiting = waits.turn("call ask");
    await until("the tool was asked", () => keys.length === 1);
    const before = (await troupe.stats()).workers.map(({ threadId }) => threadId);
    await others[0]?.turn("leak");
    await until("it was replaced", async () => (await recycled(troupe))[0] === 1);
    // These do not wait for the one that does.
    const counted = await Promise.all(others.map((session) => session.turn("call count")));
    expect(counted.map(firstToolValue)).toEqual([3, 2, 2]);
    const [after, threads] = [await troupe.stats(), await Promise.all(others.map((session) => session.info()))];
    expect(after.retiring).toEqual({ index: 0, threadId: before[0], sessions: 1 });
    expect(after.workers.map(({ threadId }) => threadId === before[0])).toEqual([false, false]);
    expect(threads.map(({ threadId }) => threadId)).toEqual(others.map(() => after.workers[0]?.threadId));
    expect((await waits.info()).threadId).toBe(before[0]);

    await troupe.completeTool(keys[0] as string, { value: "yes" });
    expect(firstToolValue(await waiting)).toBe("yes");
    await until("the old thread has ended", async () => (await troupe.stats()).retiring === null);
    expect(firstToolValue(await waits.turn("call count"))).toBe(3);
    const { workers, turns } = await troupe.stats();
    expect((await waits.info()).threadId).toBe(workers[0]?.threadId);
    expect(workers.map(({ index, restarts, recycled: times }) => [index, restarts, times])).toEqual([
      [0, 0, 1],
      [1, 0, 0],
    ]);
    expect(turns).toEqual({ asked: 10, finished: 10, refused: 0 });
  });

  test("is replaced also when there is only one, and each in its turn when there are two", async () => {
    for (const count of [1, 2]) {
      const { troupe } = await leaking(count);
      const sessions = await Promise.all(["a", "b", "c", "d"].map((id) => troupe.session(id)));
      const rounds = sessions.map(async (session, n) => {
        await session.turn("call count");
        await troupe.move(session.id, n % count);
        await session.turn("leak");
        const values: unknown[] = [];
        for (let turn = 0; turn < 5; turn++) values.push(firstToolValue(await session.turn("call count")));
        return values;
      });
      expect(await Promise.all(rounds)).toEqual(sessions.map(() => [3, 4, 5, 6, 7]));
      await until("all were replaced", async () => (await recycled(troupe)).every((times) => times >= 1));
      await until("and have ended", async () => (await troupe.stats()).retiring === null);
      const { turns, workers } = await troupe.stats();
      expect(turns).toEqual({ asked: 28, finished: 28, refused: 0 });
      expect(workers.map(({ restarts }) => restarts)).toEqual(workers.map(() => 0));
    }
  });

  test("does not keep its runtime from closing while it is being replaced", async () => {
    const { troupe, keys } = await leaking(1);
    const session = await troupe.session("s");
    const refused = session.turn("call ask").then(
      ({ outcome }) => outcome,
      ({ code }) => code,
    );
    await until("the tool was asked", () => keys.length === 1);
    await (await troupe.session("other")).turn("leak");
    await until("it was replaced", async () => (await recycled(troupe))[0] === 1);
    await troupe.close();
    expect(await refused).toMatchObject({ type: "stopped", reason: "cancelled" });
  });

  test.each([0, 2, "0.5"])("is not looked for with a share of %s", async (share) => {
    expect((await refusalOf(createTroupe({ recycleAtHeapShare: share as number }))).code).toBe("invalid_options");
  });
});
