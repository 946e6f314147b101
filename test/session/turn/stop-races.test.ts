import { expect, test } from "vitest";
import {
  type Activity,
  completionKeyOf,
  completionUnknown,
  placeOfCompletion,
  TroupeError,
  type TurnResult,
} from "../../../src/kernel/index.js";
import { pendingTool } from "../../../src/plugin/index.js";
import { answerCall, type Session } from "../../../src/session/state/session.js";
import { NO_EXTRAS } from "../../../src/session/turn/run-turn.js";
import { type CancelAnswer, TurnStop } from "../../../src/session/turn/turn-stop.js";
import { memorySession } from "./memory-session.js";

/**
 * A turn that waits for a yes, while somebody cancels it, its time runs out and somebody says yes, each after a number of
 * microtasks that a seed says: before the turn waits, while it does, when the yes is being kept, while it is stored.
 */
const RACES = 10_000;
const TURNS_PER_SESSION = 20;

/** What each of the three was told, and what became of the turn. */
interface Race {
  readonly seed: number;
  readonly cancelled: CancelAnswer | "not asked";
  readonly answered: "taken" | "too late";
  readonly expired: boolean;
  readonly result: TurnResult;
  readonly activities: readonly Activity["type"][];
}

type Outcome = "finished" | "cancelled" | "deadline";

/** What is wrong with how a race ended; nothing, when it has one outcome and everybody was told the truth. */
function wrongWith({ cancelled, answered, expired, result, activities }: Race): string[] {
  const outcome = outcomeOf(result);
  const paid = result.toolCalls.some(({ output }) => output.status === "success");
  const ends = activities.filter((type) => type === "turn_finished").length;
  return [
    ends === 1 ? "" : `it ended ${ends} times`,
    outcome === "other" ? "it ended as nobody asked for" : "",
    outcome === "cancelled" && cancelled !== "cancelled"
      ? "it was cancelled, and who cancelled was told otherwise"
      : "",
    cancelled === "cancelled" && outcome === "finished" ? "who cancelled was told that it is, and it finished" : "",
    outcome === "deadline" && !expired ? "its time was not up" : "",
    outcome === "finished" && !paid ? "it finished without the answer it waits for" : "",
    paid && answered !== "taken" ? "it has an answer that was refused" : "",
  ].filter((problem) => problem !== "");
}

function outcomeOf({ outcome }: TurnResult): Outcome | "other" {
  if (outcome.type === "finished") return "finished";
  const reason = outcome.type === "stopped" ? outcome.reason : undefined;
  return reason === "cancelled" || reason === "deadline" ? reason : "other";
}

/** The same choices in every run. */
function choices(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761 + 1;
  return (below) => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return Math.floor((state / 2 ** 32) * below);
  };
}

async function hops(count: number): Promise<void> {
  for (let hop = 0; hop < count; hop++) await undefined;
}

async function* races(count: number, newStop: () => TurnStop): AsyncGenerator<Race> {
  let made: Awaited<ReturnType<typeof memorySession>> | undefined;
  for (let seed = 0; seed < count; seed++) {
    if (seed % TURNS_PER_SESSION === 0) {
      const says = Array.from({ length: TURNS_PER_SESSION }, () => [
        { toolCalls: [{ tool: "pay", args: {} }] },
        { text: "Paid." },
      ]);
      made = await memorySession({ tools: { pay: () => pendingTool() }, says, journals: seed % 40 === 0 });
    }
    if (made !== undefined) yield await race(made, seed, newStop());
  }
}

async function race(
  { session, turn }: Awaited<ReturnType<typeof memorySession>>,
  seed: number,
  stop: TurnStop,
): Promise<Race> {
  const choose = choices(seed);
  const activities: Activity["type"][] = [];
  let waits = (_key: string): void => {};
  const waiting = new Promise<string>((resolve) => {
    waits = resolve;
  });
  const emit = (activity: Activity) => {
    activities.push(activity.type);
    if (activity.type === "tool_call_pending") waits(activity.key);
  };
  const running = turn("Pay.", NO_EXTRAS, { emit, signal: stop.signal, stop });
  const over = running.finally(() => stop.ended());
  over.catch(() => undefined);
  // Most come while it waits; the others at any moment of its life.
  const moment = async () => {
    if (choose(4) > 0) await Promise.race([waiting, over]);
    await hops(choose(60));
  };
  let expired = false;
  const expire = async () => {
    await moment();
    expired = true;
    stop.expire({ reason: "Its time is up.", deadline: true });
  };
  const cancel = async () => {
    await moment();
    return stop.cancel({ reason: "Stop.", keepPartial: true });
  };
  const answer = async (): Promise<Race["answered"]> => {
    const key = await Promise.race([waiting, over.then(() => completionKeyOf("s", "none", "none"))]);
    await hops(choose(30));
    try {
      const place = placeOfCompletion(key);
      const outcome = await answerCall(session as Session, place, { status: "success", value: "yes" });
      if (outcome !== "counted") throw completionUnknown(key, outcome);
      return "taken";
    } catch (error) {
      if (error instanceof TroupeError && error.code === "completion_unknown") return "too late";
      throw error;
    }
  };
  const [cancelled, answered, result] = await Promise.all([
    choose(3) > 0 ? cancel() : ("not asked" as const),
    answer(),
    over,
    choose(2) > 0 ? expire() : undefined,
  ]);
  return { seed, cancelled, answered, expired, result, activities };
}

test("a cancel, a deadline and a yes at once: one outcome, and everybody is told the truth, 10,000 times", {
  timeout: 600_000,
}, async () => {
  const outcomes: Record<string, number> = {};
  const wrong: [seed: number, problems: string[]][] = [];
  for await (const race of races(RACES, () => new TurnStop())) {
    const outcome = `${outcomeOf(race.result)}, cancel ${race.cancelled}, yes ${race.answered}`;
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    const problems = wrongWith(race);
    if (problems.length > 0) wrong.push([race.seed, problems]);
  }
  expect(wrong).toEqual([]);
  expect(Object.values(outcomes).reduce((sum, count) => sum + count, 0)).toBe(RACES);
  // Each of them wins, and each of them comes too late.
  expect(Object.keys(outcomes)).toEqual(
    expect.arrayContaining([
      "finished, cancel idle, yes taken",
      "cancelled, cancel cancelled, yes taken",
      "cancelled, cancel cancelled, yes too late",
      "deadline, cancel not asked, yes too late",
      "deadline, cancel cancelled, yes too late",
    ]),
  );
});

/** Tells who cancels that it counts, whatever becomes of it. */
class Liar extends TurnStop {
  override async cancel(): Promise<CancelAnswer> {
    return "cancelled";
  }
}

/** Stops the turn, and tells who cancels that it came too late. */
class Denier extends TurnStop {
  override async cancel(why: Parameters<TurnStop["cancel"]>[0]): Promise<CancelAnswer> {
    await super.cancel(why);
    return "idle";
  }
}

test.each([
  ["who cancelled was told that it is, and it finished", Liar],
  ["it was cancelled, and who cancelled was told otherwise", Denier],
])("the judge of those races finds: %s", async (problem, Stop) => {
  const found = new Set<string>();
  for await (const race of races(200, () => new Stop())) for (const each of wrongWith(race)) found.add(each);
  expect([...found]).toEqual([problem]);
});
