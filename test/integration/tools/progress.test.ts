import { BroadcastChannel } from "node:worker_threads";
import { type Activity, createTroupe, type Session, type Troupe } from "troupe";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectWellFormed, only } from "../../support/activities.js";
import { told } from "../../support/asking.js";
import { collect, firstToolValue, fixture, PATIENT, plugin, RESIDENT } from "../../support/runtime.js";

const { reports } = await import(fixture("tools/reports.mjs").href);

const HOMES = [
  ["host", "worker"],
  ["plugin", "worker"],
  ["plugin", "inline"],
  ["pool", "worker"],
] as const;

describe.each(HOMES)("a tool of the %s (plugins in the tier %s)", (home, tier) => {
  let troupe: Troupe;
  beforeAll(async () => {
    troupe = await createTroupe({
      ...RESIDENT,
      sessionWorkers: 1,
      toolThreads: 1,
      drainMs: 500,
      plugins: [{ module: plugin("reports"), tier, ...PATIENT }],
      tools: { host_reports: reports, pool_reports: { module: fixture("tools/reports.mjs") } },
      model: fixture("models/told.mjs"),
    });
  });
  afterAll(() => troupe.close());

  const channelOf = (session: Session) => `${session.id}:${home}:${tier}`;
  const asked = (session: Session, ...ways: readonly string[]) =>
    told(...ways.map((way) => ({ call: `${home}_reports`, args: { way, channel: channelOf(session) } })), {
      say: "ok",
    });

  /** What a turn with these calls tells. Each time one of them waits and `when` was told, it is let on. */
  async function activitiesOf(session: Session, ways: readonly string[], when?: Activity["type"]) {
    const channel = new BroadcastChannel(channelOf(session));
    let waiting = 0;
    let seen = 0;
    let letOn = 0;
    const look = () => {
      if (Math.min(waiting, seen) <= letOn) return;
      letOn++;
      channel.postMessage("go on");
    };
    channel.onmessage = ({ data }: { data: unknown }) => {
      if (data === "waiting") waiting++;
      look();
    };
    try {
      const activities: Activity[] = [];
      for await (const activity of session.turn(asked(session, ...ways))) {
        activities.push(activity);
        if (activity.type === when) seen++;
        look();
      }
      expectWellFormed(activities);
      return activities;
    } finally {
      channel.close();
    }
  }

  test("says how far it is between its call's start and end: the last value always, and how many were left out", async () => {
    const activities = await activitiesOf(await troupe.session("many"), ["many"]);
    const progress = only(activities, "tool_progress");
    expect(progress[0]?.toolName).toBe(`${home}_reports`);
    expect(progress.at(-1)?.value).toEqual({ done: 999 });
    expect(progress.reduce((sum, { missed = 0 }) => sum + 1 + missed, 0)).toBe(1_000);
    const types = activities.map(({ type }) => type);
    expect(types.indexOf("tool_call_started")).toBeLessThan(types.indexOf("tool_progress"));
    expect(types.lastIndexOf("tool_progress")).toBeLessThan(types.indexOf("tool_call_finished"));
    expect(new Set(progress.map(({ callId }) => callId))).toEqual(
      new Set(only(activities, "tool_call_finished").map(({ callId }) => callId)),
    );
  });

  test("fails by nothing it says: what is no plain JSON, or more than 16 KB of it, is counted as missed", async () => {
    const activities = await activitiesOf(await troupe.session("unfit"), ["unfit"]);
    const progress = only(activities, "tool_progress");
    expect(progress.map(({ value, missed }) => [String(value).length, missed])).toEqual([[16_382, 7]]);
    expect(only(activities, "tool_call_finished")[0]?.output).toEqual({ status: "success", value: "done" });
  });

  test("says what was so when it said it, and may go on changing it", async () => {
    const activities = await activitiesOf(await troupe.session("changes"), ["changes"], "tool_progress");
    expect(only(activities, "tool_progress").map(({ value }) => value)).toEqual([{ step: 1 }]);
  });

  test("that fails has said how far it came, and one whose call has ended says nothing any more", async () => {
    const activities = await activitiesOf(await troupe.session("ends"), ["fails", "late", "quiet", "spread"]);
    expect(only(activities, "tool_progress").map(({ value }) => value)).toEqual(["nearly", "spread"]);
    const outputs = only(activities, "tool_call_finished").map(({ output }) => output);
    expect(outputs.map(({ status }) => status)).toEqual(["failure", "success", "success", "success"]);
  });

  test("that yields shows each value before the last, and the last is its result", async () => {
    const session = await troupe.session("yields");
    const activities = await activitiesOf(session, ["yields"], "tool_preliminary");
    const preliminary = only(activities, "tool_preliminary").map(({ output }) => output);
    expect(preliminary.slice(0, 2)).toEqual([{ rows: 1 }, { rows: 2 }]);
    expect(only(activities, "tool_call_finished")[0]?.output).toEqual({ status: "success", value: { rows: 3 } });
  });

  test("that yields may be promised, yield nothing, or fail", async () => {
    const session = await troupe.session("generators");
    const { toolCalls } = await session.turn(asked(session, "promised", "never", "breaks"));
    expect(toolCalls.map((each) => firstToolValue({ toolCalls: [each] }))).toEqual(["only", "returned", "tool_failed"]);
  });

  test.each(["waits", "iterates"])(
    "that %s in the middle of its values is ended by a cancelled turn, and its iterator returns",
    async (way) => {
      const session = await troupe.session(way);
      const channel = new BroadcastChannel(channelOf(session));
      const returned = new Promise((resolve) => {
        channel.onmessage = ({ data }: { data: unknown }) => data === "returned" && resolve(data);
      });
      const turn = session.turn(asked(session, way));
      for await (const { type } of turn) if (type === "tool_preliminary") turn.cancel("enough");
      expect((await turn).toolCalls[0]?.output.status).toBe("cancelled");
      await returned;
      channel.close();
    },
  );

  test("that nobody looks at sends the main thread nothing for it", async () => {
    const session = await troupe.session("unseen");
    const messages = async (way: string) => {
      const before = (await troupe.stats()).mainMessages.lane;
      await session.turn(asked(session, way));
      return (await troupe.stats()).mainMessages.lane - before;
    };
    // The first call of a pool or a plugin's thread may start it.
    await messages("quiet");
    const answer = home === "host" ? 2 : 1;
    expect([await messages("quiet"), await messages("many")]).toEqual([answer, answer]);
    expect(only(await collect(session.turn(asked(session, "many"))), "tool_progress").length).toBeGreaterThan(0);
  });
});
