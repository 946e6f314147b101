import { type Inspected, scriptedModel, type Troupe } from "troupe";
import { expect, test } from "vitest";
import { RESIDENT, refusalOf, startTroupe, until } from "../../support/runtime.js";

const model = scriptedModel({ turns: [[{ text: "You said: {input}" }]] });
const start = (sessionWorkers = 1) => startTroupe({ ...RESIDENT, sessionWorkers, model });

/** Everything that is told of these sessions, or of all; `steps` of one of them as `event → state`. */
async function inspect(troupe: Troupe, sessions?: readonly string[]) {
  const told: Inspected[] = [];
  const stop = await troupe.inspect((inspected) => void told.push(inspected), sessions && { sessions });
  const steps = (sessionId = "s") =>
    told.filter((each) => each.sessionId === sessionId).map(({ event, state }) => `${event} → ${state}`);
  return { told, steps, stop };
}

const OPENING = ["open → opening", "held → opening", "opened → idle", "released → idle"];
const TURN = ["posted → running", "turn.begun → running", "turn.stored → running", "work.done → idle"];
const PARKING = ["park → parking", "saved → parked"];
/** A message finds the session parked: it is opened for it. */
const WOKEN_BY_TURN = [
  "open → opening",
  "posted → opening",
  "opened → running",
  "turn.begun → running",
  "turn.stored → running",
  "work.done → idle",
];

test("inspect tells of a session's life in order, from its opening to its parking and back", async () => {
  const troupe = await start();
  const { told, steps } = await inspect(troupe);
  const before = Date.now();
  const session = await troupe.session("s");
  await session.turn("hi");
  await session.park();
  await session.turn("again");
  expect(steps()).toEqual([...OPENING, ...TURN, ...PARKING, ...WOKEN_BY_TURN]);
  expect(Object.keys(told[0] ?? {}).sort()).toEqual(["at", "event", "sessionId", "state"]);
  const times = told.map(({ at }) => at);
  expect([...times].sort((a, b) => a - b)).toEqual(times);
  expect(times[0]).toBeGreaterThanOrEqual(before);
});

test("inspect tells of the sessions it was asked for, open or not, and of no other", async () => {
  const troupe = await start();
  const open = await troupe.session("open");
  const { told, steps, stop } = await inspect(troupe, ["open", "later"]);
  await open.turn("hi");
  await (await troupe.session("other")).turn("hi");
  await (await troupe.session("later")).turn("hi");
  expect(steps("open")).toEqual(TURN);
  expect(steps("later")).toEqual([...OPENING, ...TURN]);
  expect(steps("other")).toEqual([]);
  const { length } = told;
  stop();
  await open.turn("unseen");
  expect(told).toHaveLength(length);
});

test("two listeners are each told of their own sessions, and one that stops leaves the other its own", async () => {
  const troupe = await start();
  const [a, b] = [await troupe.session("a"), await troupe.session("b")];
  const first = await inspect(troupe, ["a"]);
  const second = await inspect(troupe, ["a", "b"]);
  await a.turn("hi");
  second.stop();
  await b.turn("hi");
  await a.turn("again");
  expect(first.steps("a")).toEqual([...TURN, ...TURN]);
  expect([second.steps("a"), second.steps("b")]).toEqual([TURN, []]);
});

test("a session is inspected on, when it is moved and when its worker is replaced", async () => {
  const troupe = await start(2);
  const session = await troupe.session("s");
  const from = (await troupe.stats()).workers.findIndex(({ sessions }) => sessions === 1);
  const { steps } = await inspect(troupe, ["s"]);
  await troupe.move("s", 1 - from);
  await session.turn("moved");
  expect(steps()).toEqual([...PARKING, ...WOKEN_BY_TURN]);
  await troupe.kill({ sessionWorker: 1 - from });
  await session.turn("on a new thread");
  // What the main thread asks beside the turn may hold the session for a moment.
  const lived = steps().filter((step) => !/^(held|released)/.test(step));
  expect(lived.slice(PARKING.length + WOKEN_BY_TURN.length)).toEqual(WOKEN_BY_TURN);
});

test("a session that could not be opened is told of as failed", async () => {
  const troupe = await start();
  const { steps } = await inspect(troupe);
  await (await troupe.session("s")).turn("hi");
  await troupe.deleteSession("s");
  await refusalOf(troupe.session("s"));
  await until("the end was told", () => steps().at(-1)?.endsWith("failed") === true);
});

test("a listener that throws is warned about, and the others are told all the same", async () => {
  const warnings: string[] = [];
  const onWarning = ({ message }: Error) => void warnings.push(message);
  process.on("warning", onWarning);
  try {
    const troupe = await start();
    const session = await troupe.session("s");
    await troupe.inspect(() => {
      throw new Error("not today");
    });
    const { steps } = await inspect(troupe);
    await session.turn("hi");
    expect(steps()).toEqual(TURN);
    await until("the warnings came", () => warnings.length === TURN.length);
    expect(new Set(warnings)).toEqual(new Set(["A listener of inspect threw: not today"]));
  } finally {
    process.off("warning", onWarning);
  }
});

test.each([
  ["a listener that is no function", [{ listener: true }]],
  ["sessions that are no list", [() => undefined, { sessions: "s" }]],
  ["a session without an id", [() => undefined, { sessions: ["s", ""] }]],
])("inspect refuses %s as invalid_options", async (_, given) => {
  const troupe = await start();
  const error = await refusalOf(troupe.inspect(...(given as unknown as Parameters<Troupe["inspect"]>)));
  expect(error.code).toBe("invalid_options");
});
