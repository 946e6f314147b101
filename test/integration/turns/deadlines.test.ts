import { pendingTool, type Session, type TroupeOptions } from "troupe";
import { describe, expect, test } from "vitest";
import { EMPTY_OBJECT, fixture, refusalOf, startTroupe, tempFolder } from "../../support/runtime.js";

const OBEYS = fixture("models/obeys.mjs");
const late = (ms: number) => ({
  type: "stopped",
  reason: "deadline",
  code: "turn_deadline",
  message: `The turn did not end within ${ms} ms.`,
});

async function started(options: TroupeOptions = {}): Promise<Session> {
  const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS, ...options });
  return troupe.session("s");
}

describe("a turn's deadlineMs", () => {
  test("ends a turn whose model does not come to an end, with an issue, and keeps what was shown", async () => {
    const session = await started();
    const { outcome, issues, text } = await session.turn("say a|<hang>", { deadlineMs: 300 });
    expect([outcome, text]).toEqual([late(300), ""]);
    expect(issues).toMatchObject([{ kind: "runtime", code: "turn_deadline" }]);
    expect((await session.messages())[1]).toMatchObject({ interrupted: true, parts: [{ type: "text", text: "a" }] });
    expect((await session.turn("say two")).text).toBe("two");
  });

  test("keeps nothing of the answer when it is asked not to", async () => {
    const session = await started();
    await session.turn("say a|<hang>", { deadlineMs: 300, deadlineKeepsPartial: false });
    expect((await session.messages()).map(({ role }) => role)).toEqual(["user"]);
  });

  test("ends a tool that does not come to an end", async () => {
    const dig = { description: "Digs", inputSchema: EMPTY_OBJECT, execute: () => new Promise(() => {}) };
    const session = await started({ tools: { dig } });
    const { outcome, toolCalls } = await session.turn("call dig", { deadlineMs: 300 });
    expect([outcome, toolCalls[0]?.output.status]).toEqual([late(300), "cancelled"]);
  });

  test("is the runtime's when the turn says nothing, and none when it says null", async () => {
    const session = await started({ deadlineMs: 300 });
    expect((await session.turn("say a|<hang>")).outcome).toEqual(late(300));
    const turn = session.turn("say a|<hang>", { deadlineMs: null });
    // The turn before it ended by the same limit, so this one had as long.
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(Boolean((await session.view()).running)).toBe(true);
    expect(await session.cancel("Enough.")).toBe("cancelled");
    expect((await turn).outcome).toMatchObject({ reason: "cancelled", message: "Enough." });
  });

  test("does not run while the turn waits for an answer, unless it is to", async () => {
    const ask = { description: "Asks", inputSchema: EMPTY_OBJECT, execute: () => pendingTool() };
    const troupe = await startTroupe({ sessionWorkers: 1, model: OBEYS, tools: { ask } });
    const [still, runs] = await Promise.all([troupe.session("still"), troupe.session("runs")]);
    const waiting = still.turn("call ask\nsay done", { deadlineMs: 2_000 });
    let key = "";
    for await (const activity of waiting) {
      if (activity.type !== "tool_call_pending") continue;
      key = activity.key;
      break;
    }
    // Longer than the other's whole time, which counts the waiting.
    expect((await runs.turn("call ask", { deadlineMs: 2_500, deadlineCountsWaiting: true })).outcome).toEqual(
      late(2_500),
    );
    await troupe.completeTool(key, { value: "yes" });
    expect((await waiting).text).toBe("done");
  });

  test("counts on over the death of the process: a turn whose time is up ends at the next start", async () => {
    const path = await tempFolder();
    const options = { store: { path }, drainMs: 1 };
    const first = await startTroupe({ sessionWorkers: 1, model: OBEYS, ...options });
    const turn = (await first.session("s")).turn("say a|<hang>", { key: "k", deadlineMs: 1_500 });
    for await (const { type } of turn) if (type === "text_delta") break;
    await first.close();
    expect(await refusalOf(turn)).toMatchObject({ code: "turn_suspended" });
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    const again = await startTroupe({ sessionWorkers: 1, model: OBEYS, ...options });
    const { outcome, modelCalls } = await (await again.session("s")).turn("say a|<hang>", { key: "k" });
    expect([outcome, modelCalls]).toEqual([late(1_500), 0]);
  });

  test.each([0, -1, 1.5, Number.NaN, "1 s"])("refuses %s with its own words", async (deadlineMs) => {
    const session = await started();
    expect(() => session.turn("hi", { deadlineMs: deadlineMs as number })).toThrow(
      expect.objectContaining({
        code: "invalid_turn_options",
        message: expect.stringContaining("deadlineMs is a whole number of milliseconds from 1, or null"),
      }),
    );
    const refused = await refusalOf(startTroupe({ deadlineMs: deadlineMs as number }));
    expect(refused).toMatchObject({ code: "invalid_options", message: expect.stringContaining("deadlineMs") });
  });
});

describe("what nobody uses costs nothing", () => {
  const TOOLS = { look: { description: "Looks", inputSchema: EMPTY_OBJECT, execute: () => "seen" } };
  const cost = async (options: TroupeOptions, run: (session: Session) => PromiseLike<unknown>) => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: OBEYS,
      tools: TOOLS,
      store: { path: await tempFolder() },
      ...options,
    });
    const session = await troupe.session("s");
    await session.turn("say warm");
    const before = await troupe.stats();
    await run(session);
    const after = await troupe.stats();
    return {
      records: after.store.records - before.store.records,
      lane: after.mainMessages.lane - before.mainMessages.lane,
    };
  };

  test("a deadline that is not reached writes no row and sends no message", async () => {
    const run = (options: object) => (session: Session) => session.turn("call look\nsay done", options);
    const plain = await cost({}, run({}));
    expect(await cost({}, run({ deadlineMs: 600_000 }))).toEqual(plain);
    expect(await cost({ deadlineMs: 600_000 }, run({}))).toEqual(plain);
  });

  test("a cancellation is one row, and session.cancel one answer", async () => {
    const stopped = (stop: (session: Session) => unknown) => async (session: Session) => {
      const turn = session.turn("say a|<hang>", { deadlineMs: 600_000 });
      for await (const { type } of turn) if (type === "text_delta") await stop(session);
      await turn;
    };
    const byDeadline = await cost({}, async (session) => {
      const turn = session.turn("say a|<hang>", { deadlineMs: 300 });
      for await (const _ of turn);
      await turn;
    });
    const byCancel = await cost(
      {},
      stopped((session) => session.cancel()),
    );
    expect(byCancel.records - byDeadline.records).toBe(1);
    // Of the issue that tells of the deadline there is none.
    expect(byCancel.lane - byDeadline.lane).toBe(0);
  });
});
