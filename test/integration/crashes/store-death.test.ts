import { scriptedModel, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { counted, gates } from "../../support/journaled.js";
import { fixture, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

/** The store's thread is not replaced: what needs it says so from then on, and nothing hangs. */
describe("a store whose thread dies", () => {
  const stores: Record<string, () => Promise<TroupeOptions["store"]>> = {
    memory: async () => ({ memory: true }),
    path: async () => ({ path: await tempFolder() }),
  };
  for (const [kind, store] of Object.entries(stores)) {
    test(`refuses everything with store_lost, what is under way too, and can still be closed (${kind})`, async () => {
      const gate = gates();
      const troupe = await startTroupe({
        sessionWorkers: 2,
        store: (await store()) as NonNullable<TroupeOptions["store"]>,
        tools: { wait: gate.tool("wait"), ask: { module: fixture("tools/waits.mjs") } },
        model: scriptedModel({
          turns: [[{ toolCalls: ["wait", "ask"].map((tool) => ({ tool, args: {} })) }, { text: "done" }]],
        }),
      });
      const sessions = await Promise.all(["a", "b", "c"].map((id) => troupe.session(id)));
      const turns = sessions.flatMap((session) => [session.turn("running"), session.turn("behind it")]);
      const refusals = Promise.all(turns.map(refusalOf));
      await until("they run", () => gate.calls.length === sessions.length);
      await troupe.kill({ store: true });
      expect((await refusals).map(({ code, retryable }) => `${code} ${retryable}`)).toEqual(
        turns.map(() => "store_lost false"),
      );
      const [session] = sessions;
      const asked = [
        troupe.session("new"),
        session?.turn("more"),
        session?.steer("more"),
        session?.view(),
        session?.info(),
        session?.fork(),
        troupe.stats(),
      ];
      const codes = await Promise.all(asked.map(async (call) => (await refusalOf(call as Promise<unknown>)).code));
      expect(codes).toEqual(asked.map(() => "store_lost"));
      await troupe.close();
      expect(await refusalOf(troupe.session("new"))).toMatchObject({ code: "closed" });
    });
  }

  test("keeps what was answered and the turn it interrupted for the next runtime", async () => {
    const gate = gates();
    const { start, lines } = await counted({ tools: { first: gate.quick("first"), wait: gate.tool("wait") } });
    const troupe = await start();
    const session = await troupe.session("s");
    await session.turn("one");
    const refused = refusalOf(session.turn("first wait answer"));
    await until("the tool runs", () => gate.calls.length === 2);
    await troupe.kill({ store: true });
    expect(await refused).toMatchObject({ code: "store_lost" });
    await troupe.close();
    const again = await start();
    await until("the tool runs again", () => gate.calls.length === 3);
    gate.open("wait");
    const session2 = await again.session("s");
    await until("the turn is stored", async () => (await session2.info()).turns === 2);
    expect(gate.calls).toEqual(["first", "wait", "wait"]);
    expect(await lines()).toEqual(["model t1 0", "model t2 0", "model t2 1", "model t2 2"]);
  });

  test("while a turn is being stored: its caller is told, and the model is not asked again", async () => {
    const { start, lines } = await counted();
    const troupe = await start();
    const sessions = await Promise.all(Array.from({ length: 8 }, (_, n) => troupe.session(`s${n}`)));
    const turns = sessions.map((session) => session.turn("answer"));
    const settled = Promise.allSettled(turns);
    await troupe.kill({ store: true });
    for (const result of await settled)
      if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "store_lost" });
    expect((await lines()).length).toBeLessThanOrEqual(sessions.length);
  });
});
