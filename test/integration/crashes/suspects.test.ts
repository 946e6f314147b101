import { describe, expect, test } from "vitest";
import { counted, gates } from "../../support/journaled.js";
import { fixture, plugin, refusalOf, until } from "../../support/runtime.js";

/** Turns that share a worker with one that kills it again and again. */
describe("a turn that kills its worker", () => {
  test("is ended as such, and those that only shared the worker go on to their own ends", async () => {
    const gate = gates();
    const { start, lines } = await counted({
      tools: { wait: gate.tool("wait"), ask: { module: fixture("tools/waits.mjs") } },
    });
    const troupe = await start();
    const [works, waits, kills] = await Promise.all(["works", "waits", "kills"].map((id) => troupe.session(id)));
    const working = works?.turn("wait one");
    const waiting = waits?.turn("ask two");
    let key = "";
    const reading = (async () => {
      for await (const activity of waiting ?? []) if (activity.type === "tool_call_pending") ({ key } = activity);
    })();
    await until("both are at their tools", () => gate.calls.length === 1 && key !== "");
    const killing = kills?.turn("exit");
    expect((await killing)?.outcome).toMatchObject({ type: "stopped", code: "turn_poisoned" });
    expect((await troupe.stats()).workers[0]?.restarts).toBeGreaterThanOrEqual(4);
    await until("the tool runs again", () => gate.calls.length > 1);
    // Of its last call: those before it were of workers that are gone.
    await until("it is let through", async () => {
      gate.open("wait");
      return (await works?.info())?.turns === 1;
    });
    await troupe.completeTool(key, { value: "yes" });
    expect(await Promise.all([working, waiting])).toMatchObject([
      { outcome: { type: "finished" }, text: "one" },
      { outcome: { type: "finished" }, text: "two" },
    ]);
    await reading;
    // What was paid for was paid once.
    const paid = (await lines()).filter((line) => line === "model t1 1");
    expect(paid).toHaveLength(2);
  });

  test("in a hook at its end is ended without that hook", async () => {
    const dies = { module: plugin("exits-after-turn"), tier: "inline", options: { input: "die" } } as const;
    const { start } = await counted({ plugins: [dies] });
    const session = await (await start()).session("s");
    expect((await session.turn("die")).outcome).toMatchObject({ type: "stopped", code: "turn_poisoned" });
    expect(await session.turn("live")).toMatchObject({ turnIndex: 2, outcome: { type: "finished" } });
  });
});

describe("a turn that was taken up often", () => {
  test("and waits for a person each time, is nobody's suspect", async () => {
    const { start } = await counted({ tools: { ask: { module: fixture("tools/waits.mjs") } } });
    const troupe = await start();
    const session = await troupe.session("s");
    const turn = session.turn("ask answer");
    let pending = 0;
    let key = "";
    const reading = (async () => {
      for await (const activity of turn)
        if (activity.type === "tool_call_pending") {
          pending++;
          ({ key } = activity);
        }
    })();
    for (let deaths = 1; deaths <= 6; deaths++) {
      await until("it waits", () => pending === deaths);
      await troupe.kill({ sessionWorker: 0 });
    }
    await until("it waits again", () => pending === 7);
    await troupe.completeTool(key, { value: "yes" });
    expect(await turn).toMatchObject({ text: "answer", toolCalls: [{ output: { status: "success", value: "yes" } }] });
    await reading;
  });

  test("because its runtime was closed in order, is nobody's suspect", async () => {
    const gate = gates();
    const { start } = await counted({ tools: { wait: gate.tool("wait") } });
    for (let closings = 1; closings <= 5; closings++) {
      const troupe = await start();
      const session = await troupe.session("s");
      const turn = closings === 1 ? session.turn("wait answer") : undefined;
      const refused = turn && refusalOf(turn);
      await until("the tool runs", () => gate.calls.length === closings);
      await troupe.close();
      if (refused !== undefined) expect(await refused).toMatchObject({ code: "turn_suspended" });
    }
    const session = await (await start()).session("s");
    await until("the tool runs once more", () => gate.calls.length === 6);
    gate.open("wait");
    await until("the turn is stored", async () => (await session.info()).turns === 1);
    expect((await session.messages({ from: -1 }))[0]?.parts).toEqual([{ type: "text", text: "answer" }]);
  });
});
