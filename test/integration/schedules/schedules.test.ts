import { createTroupe, type Troupe, type TroupeEvent, type TroupeOptions } from "troupe";
import { expect, test } from "vitest";
import { fixture, plugin, refusalOf, startTroupe, tempFolder, until } from "../../support/runtime.js";

const HOUR = 3_600_000;
const soon = () => Date.now() + 24 * HOUR;
const inputsOf = async (troupe: Troupe, id: string) => {
  const messages = await (await troupe.session(id)).messages();
  return messages
    .filter(({ role }) => role === "user")
    .map(({ parts }) => parts.map((part) => ("text" in part ? part.text : "")).join(""));
};
const turnsOf = async (troupe: Troupe, id: string) => (await (await troupe.session(id)).info()).turns;

test("a schedule that is due begins a turn of its session by itself, also of one nobody has opened", async () => {
  const troupe = await startTroupe();
  await troupe.schedules.put("wake", { session: "sleeper", at: Date.now(), input: "Good morning." });
  await until("the turn is stored", async () => (await turnsOf(troupe, "sleeper")) === 1);
  expect(await inputsOf(troupe, "sleeper")).toEqual(["Good morning."]);
  expect(await troupe.schedules.get("wake")).toMatchObject({
    state: "ended",
    next: null,
    runs: 1,
    last: { outcome: "ran", sessionId: "sleeper" },
  });
});

test("a schedule wakes a parked session, and each run for a new session has one of its own, with its tenant", async () => {
  const troupe = await startTroupe();
  const session = await troupe.session("parked");
  await session.turn("first");
  await session.park();
  await troupe.schedules.put("wake", { session: "parked", at: Date.now(), input: "second" });
  await until("the turn is stored", async () => (await turnsOf(troupe, "parked")) === 2);
  const newSession = { prefix: "digest", tenant: "acme", metadata: { kind: "digest" } };
  await troupe.schedules.put("digest", { newSession, everyMs: HOUR, input: "What is new?" });
  expect((await troupe.schedules.runNow("digest")).sessionId).toBe("digest/1");
  expect((await troupe.schedules.runNow("digest")).sessionId).toBe("digest/2");
  await until(
    "both are stored",
    async () => (await turnsOf(troupe, "digest/1")) + (await turnsOf(troupe, "digest/2")) === 2,
  );
  const { sessions } = await troupe.listSessions({ tenant: "acme" });
  expect(sessions.map(({ id, metadata }) => [id, metadata])).toEqual([
    ["digest/1", { kind: "digest" }],
    ["digest/2", { kind: "digest" }],
  ]);
});

test("turns that schedules begin in many sessions at one instant call a plugin's hooks in few messages", async () => {
  const troupe = await startTroupe({ sessionWorkers: 1, plugins: [{ module: plugin("counter") }] });
  const keys = Array.from({ length: 50 }, (_, n) => `s${n}`);
  const request = (session: string) => ({ session, at: soon(), input: "Good morning." });
  for (const key of keys) await troupe.schedules.put(key, request(key));
  await Promise.all(keys.map(async (key) => (await troupe.session(key)).turn("warm up")));
  const { hookMessages } = await troupe.stats();
  await Promise.all(keys.map((key) => troupe.schedules.runNow(key)));
  await until("each has had its turn", async () => {
    const turns = await Promise.all(keys.map((key) => turnsOf(troupe, key)));
    return turns.every((count) => count === 2);
  });
  const after = await troupe.stats();
  expect(after.hooks["plugin_hook.before_turn.test.counter"]?.count).toBe(100);
  // Their beforeTurn and what they have to capture: 100 calls.
  expect(after.hookMessages.sent - hookMessages.sent).toBeLessThan(20);
});

test("a schedule that is asked for at every start is one schedule, and runs once over ten restarts", async () => {
  const path = await tempFolder();
  const at = Date.now();
  for (let start = 0; start < 10; start++) {
    const troupe = await createTroupe({ store: { path }, sessionWorkers: 1 });
    await troupe.schedules.put("once", { session: "s", at, input: "once" });
    if (start === 0) await until("the turn is stored", async () => (await turnsOf(troupe, "s")) === 1);
    expect((await troupe.schedules.list()).schedules.map(({ key, runs, state }) => [key, runs, state])).toEqual([
      ["once", 1, "ended"],
    ]);
    await troupe.close();
  }
  const troupe = await startTroupe({ store: { path } });
  expect(await inputsOf(troupe, "s")).toEqual(["once"]);
});

test("what was due while nothing ran is run once at the next start, and left out with misfire skip", async () => {
  const path = await tempFolder();
  const before = await createTroupe({ store: { path } });
  const late = Date.now() - 2 * HOUR;
  const { schedules } = before;
  // Closed before they are due; the past is what downtime looks like to whoever starts behind it.
  await schedules.put("once", { session: "a", everyMs: HOUR, input: "hourly" });
  await schedules.pause("once");
  await before.close();
  const events: TroupeEvent[] = [];
  const troupe = await startTroupe({ store: { path }, onEvent: (event) => void events.push(event) });
  await troupe.schedules.put("at", { session: "b", at: late, input: "late" });
  await troupe.schedules.put("never", { session: "c", at: late, input: "late", misfire: "skip" });
  await until("the late one is run", async () => (await turnsOf(troupe, "b")) === 1);
  await until("the other is left out", async () => (await troupe.schedules.get("never"))?.state === "ended");
  expect(await turnsOf(troupe, "c")).toBe(0);
  expect((await troupe.schedules.get("never"))?.last).toMatchObject({ outcome: "missed", due: late });
  await until("it is told", () => events.some(({ type }) => type === "schedule_missed"));
  expect(await turnsOf(troupe, "a")).toBe(0);
  expect(await troupe.schedules.resume("once")).toMatchObject({ state: "active", runs: 0 });
});

/** A session whose turn runs until the runtime closes. */
async function busy(options: TroupeOptions = {}) {
  const hangs = {
    hang: { description: "Hangs", inputSchema: { type: "object" }, execute: () => new Promise(() => {}) },
  };
  const troupe = await startTroupe({
    ...options,
    tools: hangs,
    model: new URL("../../fixtures/models/told.mjs", import.meta.url),
    drainMs: 1,
  });
  return troupe;
}
const HANG = JSON.stringify([{ call: "hang", args: {} }]);
const running = (troupe: Troupe, id: string) => async () => (await (await troupe.session(id)).view()).running;

test("a run that is due while the turn of the run before still runs is left out, or waits behind it", async () => {
  const troupe = await busy();
  await troupe.schedules.put("skips", { session: "a", everyMs: HOUR, input: HANG });
  expect((await troupe.schedules.runNow("skips")).outcome).toBe("ran");
  await until("it runs", running(troupe, "a"));
  expect((await troupe.schedules.runNow("skips")).outcome).toBe("skipped");
  expect(await (await troupe.session("a")).inputs()).toEqual([]);
  await troupe.schedules.put("queues", { session: "b", everyMs: HOUR, input: HANG, overlap: "queue" });
  await troupe.schedules.runNow("queues");
  await until("it runs", running(troupe, "b"));
  expect((await troupe.schedules.runNow("queues")).outcome).toBe("ran");
  expect((await troupe.schedules.runNow("queues")).outcome).toBe("ran");
  expect((await (await troupe.session("b")).inputs()).map(({ text, ownTurn }) => [text, ownTurn])).toEqual([
    [HANG, true],
    [HANG, true],
  ]);
  expect((await troupe.schedules.get("queues"))?.runs).toBe(3);
});

test("a schedule whose session was deleted ends, says so, and makes nothing", async () => {
  const events: TroupeEvent[] = [];
  const troupe = await startTroupe({ onEvent: (event) => void events.push(event) });
  await (await troupe.session("gone")).turn("hello");
  await troupe.schedules.put("poll", { session: "gone", everyMs: HOUR, input: "Anything new?" });
  await troupe.deleteSession("gone");
  await troupe.schedules.put("now", { session: "gone", at: Date.now(), input: "?" });
  await until("it has failed", async () => (await troupe.schedules.get("now"))?.state === "failed");
  expect((await troupe.schedules.get("now"))?.last).toMatchObject({
    outcome: "failed",
    error: { code: "session_deleted" },
  });
  expect((await refusalOf(troupe.schedules.runNow("poll"))).code).toBe("session_deleted");
  await until("it is told", () => events.some(({ type }) => type === "schedule_failed"));
  expect(events.find(({ type }) => type === "schedule_failed")).toMatchObject({ schedule: "now", final: true });
});

test("a schedule whose new session is there already and is another tenant's ends, says so, and asks nothing of it", async () => {
  const troupe = await startTroupe();
  const theirs = await troupe.session("n/1", { tenant: "theirs" });
  await theirs.turn("hello");
  const newSession = { prefix: "n", tenant: "ours" };
  await troupe.schedules.put("k", { newSession, at: Date.now(), input: "ours" });
  await until("it has ended", async () => (await troupe.schedules.get("k"))?.state !== "active");
  expect(await troupe.schedules.get("k")).toMatchObject({
    state: "failed",
    last: { outcome: "failed", error: { code: "tenant_mismatch" } },
  });
  expect(await inputsOf(troupe, "n/1")).toEqual(["hello"]);
});

test("the same request is the same schedule, another one begins it anew, and a removed one is gone", async () => {
  const troupe = await startTroupe();
  const { schedules } = troupe;
  const request = { session: "s", everyMs: HOUR, input: "hi" } as const;
  const first = await schedules.put("k", request);
  await schedules.runNow("k");
  expect(await schedules.put("k", { ...request })).toMatchObject({ runs: 1, since: first.since });
  expect(await schedules.put("k", { ...request, input: "hello" })).toMatchObject({ runs: 0, input: "hello" });
  await schedules.put("k/2", { session: "s", cron: "0 9 * * 1-5", timeZone: "Europe/Oslo", input: "hi" });
  expect((await schedules.list({ prefix: "k/" })).schedules.map(({ key, cron }) => [key, cron])).toEqual([
    ["k/2", "0 9 * * 1-5"],
  ]);
  const page = await schedules.list({ limit: 1 });
  expect([page.schedules[0]?.key, page.next]).toEqual(["k", "k"]);
  expect((await schedules.list({ limit: 1, after: page.next })).schedules[0]?.key).toBe("k/2");
  expect(await schedules.remove("k")).toBe(true);
  expect(await schedules.remove("k")).toBe(false);
  expect(await schedules.get("k")).toBeUndefined();
  for (const call of [schedules.pause("k"), schedules.resume("k"), schedules.runNow("k")])
    expect(await refusalOf(call)).toMatchObject({
      code: "schedule_unknown",
      message: 'There is no schedule "k". troupe.schedules.list() says which there are.',
    });
});

test("a cron expression that never comes, and one that is none, are refused when they are asked for", async () => {
  const troupe = await startTroupe();
  const put = (cron: string) => refusalOf(troupe.schedules.put("k", { session: "s", cron, input: "hi" }));
  expect((await put("0 0 30 2 *")).message).toContain('a time of "0 0 30 2 *" in UTC never comes');
  expect(await put("at nine")).toMatchObject({ code: "invalid_schedule" });
  expect((await troupe.schedules.list()).schedules).toEqual([]);
});

test("a session takes the run and the schedule counts it in one write, and a runtime without schedules asks nothing", async () => {
  const path = await tempFolder();
  const troupe = await startTroupe({ store: { path }, sessionWorkers: 1 });
  await (await troupe.session("s")).turn("hello");
  await troupe.schedules.put("k", { session: "s", at: soon(), input: "hi" });
  const before = (await troupe.stats()).store;
  await (await troupe.session("s")).turn("again");
  const one = (await troupe.stats()).store;
  await troupe.schedules.runNow("k");
  await until("the turn is stored", async () => (await turnsOf(troupe, "s")) === 3);
  const two = (await troupe.stats()).store;
  // The turn, and before it the input with the schedule's row.
  expect(two.commits - one.commits - (one.commits - before.commits)).toBe(1);
});

test("a schedule goes on in the next process when this one is closed in the middle of its run", async () => {
  const path = await tempFolder();
  const first = await busy({ store: { path } });
  await first.schedules.put("k", { session: "s", at: Date.now(), input: HANG });
  await until("it runs", running(first, "s"));
  await first.close();
  const second = await startTroupe({ store: { path } });
  expect(await second.schedules.get("k")).toMatchObject({ state: "ended", runs: 1 });
});

test("with overlap cancel a run takes the place of the turn of the run before, which ends as cancelled", async () => {
  const troupe = await busy();
  await troupe.schedules.put("k", { session: "s", everyMs: HOUR, input: HANG, overlap: "cancel" });
  await troupe.schedules.runNow("k");
  await until("it runs", running(troupe, "s"));
  const session = await troupe.session("s");
  expect((await troupe.schedules.runNow("k")).outcome).toBe("ran");
  await until(
    "the first has ended, and the second runs",
    async () => (await session.info()).turns === 1 && (await session.view()).running,
  );
  expect(await session.inputs()).toEqual([]);
  expect((await troupe.schedules.get("k"))?.runs).toBe(2);
});

test("a schedule of a session whose budget is spent asks it once for each run, and the turn ends as any other would", async () => {
  const troupe = await startTroupe({ model: fixture("models/told.mjs"), budget: { maxTokens: 10 } });
  const session = await troupe.session("poor");
  await session.turn("spends it");
  await troupe.schedules.put("asks", { session: "poor", everyMs: HOUR, input: "scheduled" });
  expect((await troupe.schedules.runNow("asks")).outcome).toBe("ran");
  await until("its turn has ended", async () => (await session.info()).turns === 2);
  expect(await session.inputs()).toEqual([]);
  const { state, runs, last } = (await troupe.schedules.get("asks")) ?? {};
  expect({ state, runs, last }).toMatchObject({ state: "active", runs: 1, last: { outcome: "ran" } });
  expect((await session.spending()).tokens).toBe(15);
});
