import { BroadcastChannel } from "node:worker_threads";
import { createTroupe, type Session, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { told } from "../../support/asking.js";
import { firstToolValue, fixture, PATIENT, plugin } from "../../support/runtime.js";

const { stops } = await import(fixture("tools/stops.mjs").href);
const inPool = (graceMs: number) => new URL(`${fixture("tools/stops.mjs")}?grace=${graceMs}`);
/** Nobody stops in so little time, and everybody in so much. */
const HASTY_MS = 1;
const PATIENT_MS = 600_000;

const HOMES = [
  ["host", "worker"],
  ["plugin", "worker"],
  ["plugin", "inline"],
  ["pool", "worker"],
] as const;

describe.each(HOMES)("a tool of the %s (plugins in the tier %s) that is told to stop", (home, tier) => {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      sessionWorkers: 1,
      toolThreads: 1,
      drainMs: 500,
      plugins: [{ module: plugin("stops"), tier, ...PATIENT }],
      tools: {
        host_patient: stops(PATIENT_MS),
        host_hasty: stops(HASTY_MS),
        host_late: stops(PATIENT_MS, { timeoutMs: 200 }),
        pool_patient: { module: inPool(PATIENT_MS) },
        pool_hasty: { module: inPool(HASTY_MS) },
        pool_late: { module: inPool(PATIENT_MS), timeoutMs: 200 },
      },
      model: fixture("models/told.mjs"),
    });
  });
  afterAll(() => troupe.close());

  /** A turn whose tool runs. */
  async function running(session: Session, tool: string, way: string) {
    const channel = `${session.id}:${home}:${tier}`;
    const announced = new BroadcastChannel(channel);
    const begun = new Promise((resolve) => {
      announced.onmessage = resolve;
    });
    const turn = session.turn(told({ call: `${home}_${tool}`, args: { way, channel } }, { say: "not cancelled" }));
    await begun;
    announced.close();
    return { turn, channel };
  }
  const threadOf = async (session: Session) =>
    firstToolValue(await session.turn(told({ call: `${home}_hasty`, args: { way: "thread" } })));

  test("by a cancelled turn may finish in its grace: its result is reviewed, worded, and in the history", async () => {
    const session = await troupe.session("finishes");
    const { turn } = await running(session, "patient", "finishes");
    turn.cancel("enough");
    const { outcome, toolCalls, issues } = await turn;
    expect(outcome).toMatchObject({ type: "stopped", reason: "cancelled", message: "enough" });
    expect([toolCalls[0]?.output, issues]).toEqual([{ status: "success", value: "finished in time" }, []]);
    expect(await session.query("seen")).toEqual(["success"]);
    const conversation = JSON.parse((await session.turn(told({ say: "@conversation" }))).text);
    expect(conversation[2]).toEqual(["tool", "It finished in time."]);
  });

  test.each([
    ["throws", "patient"],
    ["ignores", "hasty"],
  ])("by a cancelled turn and %s is cancelled, and the session goes on", async (way, tool) => {
    const session = await troupe.session(way);
    const thread = await threadOf(session);
    const { turn } = await running(session, tool, way);
    turn.cancel();
    const { outcome, toolCalls } = await turn;
    expect(outcome).toMatchObject({ reason: "cancelled" });
    expect(toolCalls[0]?.output).toEqual({
      status: "cancelled",
      message: `The call of ${home}_${tool} was cancelled.`,
    });
    // A pool thread whose tool does not look is gone; no other thread can be taken from its tool.
    expect((await threadOf(session)) === thread).toBe(home !== "pool" || way === "throws");
  });

  test("by a cancelled turn and fails when nobody waits any more hurts nobody", async () => {
    const session = await troupe.session("late");
    const thread = await threadOf(session);
    const { turn, channel } = await running(session, "hasty", "fails_late");
    turn.cancel();
    expect((await turn).toolCalls[0]?.output.status).toBe("cancelled");
    const later = new BroadcastChannel(`${channel}:later`);
    later.postMessage("fail now");
    later.close();
    expect((await threadOf(session)) === thread).toBe(home !== "pool");
    const { plugins } = await troupe.stats();
    expect(plugins.map(({ restarts }) => restarts)).toEqual([0]);
  });

  test("by its time limit may finish in its grace, and the turn goes on", async () => {
    const session = await troupe.session("limit");
    await threadOf(session);
    const { turn } = await running(session, "late", "finishes");
    const result = await turn;
    expect(firstToolValue(result)).toBe("finished in time");
    expect(result.text).toBe("not cancelled");
  });
});
