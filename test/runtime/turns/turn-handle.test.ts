import fc from "fast-check";
import { describe, expect, it, onTestFinished } from "vitest";
import { ACTIVITY_VERSION, type Activity, NO_USAGE, TroupeError, type TurnResult } from "../../../src/kernel/index.js";
import { Turn } from "../../../src/runtime/turns/turns.js";

const RESULT: TurnResult = {
  sessionId: "s",
  turnId: "t",
  turnIndex: 0,
  revision: 1,
  outcome: { type: "finished", text: "hi" },
  text: "hi",
  usage: NO_USAGE,
  modelCalls: 1,
  modelCallRecords: [],
  toolCalls: [],
  issues: [],
};
const AT = 1_763_496_000_000;
const FAILURE = new TroupeError("worker_lost", "The session worker is gone.");
const STARTED: Activity = { type: "turn_started", version: ACTIVITY_VERSION, turnId: "t", turnIndex: 0, at: AT };
const FINISHED: Activity = { type: "turn_finished", result: RESULT, at: AT };
const delta = (text: string, blockId = "1"): Activity => ({ type: "text_delta", blockId, text, at: AT });

/** A turn of a runtime that does what the test says, and a record of what the turn asked of it. */
function startTurn() {
  const asked: string[] = [];
  let finish!: (result: TurnResult) => void;
  let fail!: (error: TroupeError) => void;
  const result = new Promise<TurnResult>((resolve, reject) => {
    finish = resolve;
    fail = reject;
  });
  const turn = new Turn({
    start() {
      asked.push("start");
      return result;
    },
    now: () => AT,
    listen: () => asked.push("listen"),
    cancel: (cancellation) => asked.push(`cancel: ${JSON.stringify(cancellation)}`),
  });
  return { turn, asked, finish, fail };
}

async function read(turn: Turn): Promise<Activity[]> {
  const activities: Activity[] = [];
  for await (const activity of turn) activities.push(activity);
  return activities;
}

/** Lets every promise that can settle do so. */
const settled = () => new Promise(setImmediate);

describe("listening to a turn that is just over", () => {
  it("gives its end, although the worker had nobody to tell it to", async () => {
    const { turn, finish } = startTurn();
    await settled();
    const reading = read(turn);
    finish(RESULT);
    expect(await reading).toEqual([FINISHED]);
  });

  it("gives its end once when the worker did tell it", async () => {
    const { turn, finish } = startTurn();
    const reading = read(turn);
    turn.receive(STARTED);
    turn.receive(FINISHED);
    finish(RESULT);
    expect(await reading).toEqual([STARTED, FINISHED]);
  });
});

describe("awaiting a turn", () => {
  it("gives its result, as often as asked", async () => {
    const { turn, finish } = startTurn();
    finish(RESULT);
    expect(await turn).toBe(RESULT);
    expect(await turn).toBe(RESULT);
  });

  it("throws its error", async () => {
    const { turn, fail } = startTurn();
    fail(FAILURE);
    await expect(turn).rejects.toBe(FAILURE);
    expect(await turn.catch((error) => error.code)).toBe("worker_lost");
  });

  it("throws what the runtime throws at the start", async () => {
    const turn = new Turn({
      now: () => AT,
      start() {
        throw FAILURE;
      },
      listen() {},
      cancel() {},
    });
    await expect(turn).rejects.toBe(FAILURE);
    await expect(read(turn)).rejects.toBe(FAILURE);
  });

  it("runs finally either way", async () => {
    const ends: string[] = [];
    const good = startTurn();
    good.finish(RESULT);
    expect(await good.turn.finally(() => ends.push("good"))).toBe(RESULT);
    const bad = startTurn();
    bad.fail(FAILURE);
    await expect(bad.turn.finally(() => ends.push("bad"))).rejects.toBe(FAILURE);
    expect(ends).toEqual(["good", "bad"]);
  });
});

describe("a turn is started", () => {
  it("once, and not made to speak when nobody iterates", async () => {
    const { turn, asked, finish } = startTurn();
    finish(RESULT);
    await turn;
    await turn;
    expect(asked).toEqual(["start"]);
  });

  it("after somebody who iterates in the same tick has asked to listen", async () => {
    const { turn, asked, finish } = startTurn();
    const reading = read(turn);
    finish(RESULT);
    await reading;
    expect(asked).toEqual(["listen", "start"]);
  });

  it("even when nobody awaits or iterates it", async () => {
    const { asked } = startTurn();
    await settled();
    expect(asked).toEqual(["start"]);
  });
});

describe("iterating a turn", () => {
  it("gives its activities as they come, and ends with it", async () => {
    const { turn, finish } = startTurn();
    const reading = read(turn);
    await settled();
    for (const activity of [
      STARTED,
      { type: "model_call_started", modelCallId: "t#0", step: 0 },
      delta("hi"),
      FINISHED,
    ] as Activity[]) {
      turn.receive(activity);
      await settled();
    }
    finish(RESULT);
    expect(await reading).toEqual([
      STARTED,
      { type: "model_call_started", modelCallId: "t#0", step: 0 },
      delta("hi"),
      FINISHED,
    ]);
  });

  it("goes together with awaiting it", async () => {
    const { turn, finish } = startTurn();
    const both = Promise.all([read(turn), turn]);
    await settled();
    turn.receive(STARTED);
    turn.receive(FINISHED);
    finish(RESULT);
    expect(await both).toEqual([[STARTED, FINISHED], RESULT]);
  });

  it("twice gives each reader everything", async () => {
    const { turn, finish } = startTurn();
    const readings = [read(turn), read(turn)];
    await settled();
    for (const activity of [STARTED, delta("a"), FINISHED]) turn.receive(activity);
    finish(RESULT);
    expect(await Promise.all(readings)).toEqual([
      [STARTED, delta("a"), FINISHED],
      [STARTED, delta("a"), FINISHED],
    ]);
  });

  // turn §8.83
  it("slowly gives neighbouring deltas of one block joined, and loses nothing", async () => {
    const { turn, finish } = startTurn();
    const reader = turn[Symbol.asyncIterator]();
    await settled();
    const call: Activity = { type: "tool_call_started", callId: "c", toolName: "look", args: {}, at: AT };
    const reasoning = (text: string): Activity => ({ type: "reasoning_delta", blockId: "1", text, at: AT });
    for (const activity of [
      delta("a"),
      delta("b"),
      delta("c", "2"),
      delta("d", "2"),
      reasoning("e"),
      reasoning("f"),
      delta("g"),
      call,
      delta("h"),
      FINISHED,
    ]) {
      turn.receive(activity);
    }
    finish(RESULT);
    await turn;
    const seen: Activity[] = [];
    for (let next = await reader.next(); !next.done; next = await reader.next()) seen.push(next.value);
    expect(seen).toEqual([delta("ab"), delta("cd", "2"), reasoning("ef"), delta("g"), call, delta("h"), FINISHED]);
  });

  it("at different speeds changes nothing for the others", async () => {
    const { turn, finish } = startTurn();
    const slow = turn[Symbol.asyncIterator]();
    const quick = read(turn);
    await settled();
    for (const word of ["a", "b", "c"]) {
      turn.receive(delta(word));
      await settled();
    }
    finish(RESULT);
    expect(await quick).toEqual([delta("a"), delta("b"), delta("c"), FINISHED]);
    expect(await slow.next()).toEqual({ done: false, value: delta("abc") });
    expect(await slow.next()).toEqual({ done: false, value: FINISHED });
    expect(await slow.next()).toEqual({ done: true, value: undefined });
  });

  // turn §8.83
  it("at any speed gives every piece of every block once and in order, among everything else that happened", async () => {
    const step = fc.oneof(
      fc.record({
        type: fc.constantFrom("text_delta" as const, "reasoning_delta" as const),
        blockId: fc.constantFrom("1", "2"),
        text: fc.string({ minLength: 1, maxLength: 3 }),
        at: fc.constant(AT),
      }),
      fc.nat({ max: 9 }).map((n) => ({ type: "model_call_started" as const, modelCallId: `t#${n}`, step: n, at: AT })),
      fc.constant("read" as const),
    );
    /** A delta as so many pieces of one character: how it was cut means nothing. */
    const pieces = (activities: readonly Activity[]) =>
      activities.flatMap((activity) =>
        "blockId" in activity
          ? [...activity.text].map((text) => `${activity.type} ${activity.blockId} ${text}`)
          : [JSON.stringify(activity)],
      );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
        const { turn, finish } = startTurn();
        const reader = turn[Symbol.asyncIterator]();
        const sent: Activity[] = [];
        const reads: Promise<IteratorResult<Activity>>[] = [];
        for (const next of steps) {
          if (next === "read") reads.push(reader.next());
          else {
            sent.push(next);
            turn.receive(next);
          }
        }
        turn.receive(FINISHED);
        finish(RESULT);
        const seen = (await Promise.all(reads)).flatMap(({ value, done }) => (done ? [] : [value]));
        for (let next = await reader.next(); next.done !== true; next = await reader.next()) seen.push(next.value);
        expect(pieces(seen)).toEqual(pieces([...sent, FINISHED]));
      }),
    );
  });

  // turn §8.83
  it("at once gives every delta as it came", async () => {
    const { turn } = startTurn();
    const reader = turn[Symbol.asyncIterator]();
    for (const next of [delta("a"), delta("b"), delta("c", "2"), delta("d")]) {
      const reading = reader.next();
      turn.receive(next);
      expect(await reading).toEqual({ done: false, value: next });
    }
  });

  it("may be left early: the turn goes on, and so do the other readers", async () => {
    const { turn, asked, finish } = startTurn();
    const other = read(turn);
    const left = (async () => {
      for await (const activity of turn) return activity;
      return undefined;
    })();
    await settled();
    turn.receive(STARTED);
    expect(await left).toEqual(STARTED);
    turn.receive(FINISHED);
    finish(RESULT);
    expect(await turn).toBe(RESULT);
    expect(await other).toEqual([STARTED, FINISHED]);
    expect(asked).toEqual(["listen", "listen", "start"]);
  });

  it("after its end gives its last activity", async () => {
    const { turn, asked, finish } = startTurn();
    finish(RESULT);
    await turn;
    expect(await read(turn)).toEqual([FINISHED]);
    expect(await read(turn)).toEqual([FINISHED]);
    expect(asked).toEqual(["start"]);
  });

  it("gives what came before an error, then the error, then the end", async () => {
    const { turn, fail } = startTurn();
    const reader = turn[Symbol.asyncIterator]();
    await settled();
    turn.receive(STARTED);
    fail(FAILURE);
    await settled();
    expect(await reader.next()).toEqual({ done: false, value: STARTED });
    await expect(reader.next()).rejects.toBe(FAILURE);
    expect(await reader.next()).toEqual({ done: true, value: undefined });
  });

  it("throws the error at a reader that waits, and at one that comes after it", async () => {
    const { turn, fail } = startTurn();
    const waiting = read(turn);
    await settled();
    fail(FAILURE);
    await expect(waiting).rejects.toBe(FAILURE);
    await expect(read(turn)).rejects.toBe(FAILURE);
  });
});

describe("a turn that fails", () => {
  it("is no unhandled rejection when nobody looks", async () => {
    const unhandled: unknown[] = [];
    const listener = (reason: unknown) => unhandled.push(reason);
    process.on("unhandledRejection", listener);
    onTestFinished(() => {
      process.off("unhandledRejection", listener);
    });
    const { turn, fail } = startTurn();
    turn[Symbol.asyncIterator]();
    fail(FAILURE);
    await settled();
    await settled();
    expect(unhandled).toEqual([]);
  });
});

describe("cancelling a turn", () => {
  it("tells the runtime why", async () => {
    const { turn, asked } = startTurn();
    await settled();
    turn.cancel("The user left.");
    turn.cancel(undefined, { keepPartial: true });
    expect(asked).toEqual([
      "start",
      'cancel: {"reason":"The user left."}',
      'cancel: {"reason":"The host cancelled the turn.","keepPartial":true}',
    ]);
  });
});
