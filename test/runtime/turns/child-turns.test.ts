import { describe, expect, it } from "vitest";
import {
  type Activity,
  type ModelCallRecord,
  NO_USAGE,
  TroupeError,
  type TurnResult,
  type Usage,
} from "../../../src/kernel/index.js";
import { ChildTurns } from "../../../src/runtime/turns/child-turns.js";
import { Turn } from "../../../src/runtime/turns/turns.js";

const usage = (inputTokens: number, outputTokens = 0): Usage => ({ ...NO_USAGE, inputTokens, outputTokens });
const recordOf = (spent: Usage, model = "m"): ModelCallRecord => ({
  modelCallId: "t1#0",
  step: 0,
  model,
  route: model,
  attempts: [{ attempt: 1, outcome: "completed", durationMs: 1, outputStarted: true, usage: spent }],
});
const resultOf = (spent: Usage, records: readonly ModelCallRecord[] = [recordOf(spent)]): TurnResult => ({
  sessionId: "child",
  turnId: "t1",
  turnIndex: 1,
  revision: 1,
  outcome: { type: "finished", text: "hi" },
  text: "hi",
  usage: spent,
  modelCalls: 1,
  modelCallRecords: records,
  toolCalls: [],
  issues: [],
});
const modelCall = (spent: Usage, model = "m"): Activity => ({
  type: "model_call_finished",
  modelCallId: "t1#0",
  step: 0,
  reason: "stop",
  usage: spent,
  record: recordOf(spent, model),
  at: 1,
});
const callStarted = (step: number): Activity => ({
  type: "model_call_started",
  modelCallId: `t1#${step}`,
  step,
  at: 1,
});
const delta = (text: string, blockId = "b"): Activity => ({ type: "text_delta", blockId, text, at: 1 });

/** A turn that does what the test says. */
function fakeTurn() {
  let finish!: (result: TurnResult) => void;
  let fail!: (error: TroupeError) => void;
  const cancelled: string[] = [];
  const result = new Promise<TurnResult>((resolve, reject) => {
    finish = resolve;
    fail = reject;
  });
  const turn = new Turn({
    start: () => result,
    now: () => 1,
    listen: () => undefined,
    cancel: ({ reason }) => cancelled.push(reason),
  });
  /** Ends it as the runtime does: the last activity, then the result. */
  const end = (spent = NO_USAGE, records?: readonly ModelCallRecord[]) => {
    turn.receive({ type: "turn_finished", result: resultOf(spent, records), at: 1 });
    finish(resultOf(spent, records));
  };
  return { turn, end, fail, cancelled };
}

function start(
  turns: ChildTurns,
  options: { from?: string; sessionId?: string; turnId?: string; streams?: boolean } = {},
) {
  const { from = "parent", sessionId = "child", streams = true } = options;
  const fake = fakeTurn();
  const told: [model: string, usage: Usage][] = [];
  const turnId = turns.start({
    from,
    sessionId,
    turnId: options.turnId,
    streams,
    limited: false,
    start: () => fake.turn,
    onUsage: (model, spent) => told.push([model, spent]),
    onCallEnded: () => undefined,
  });
  return { ...fake, told, ref: { from, turnId } };
}

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "resolved",
    (error: unknown) => (error as TroupeError).code,
  );
const thrownBy = (call: () => unknown) => {
  try {
    call();
    return "nothing";
  } catch (error) {
    return (error as TroupeError).code;
  }
};

async function readAll(turns: ChildTurns, ref: { from: string; turnId: string }): Promise<Activity[]> {
  const read: Activity[] = [];
  for (;;) {
    const batch = await turns.events(ref);
    if (batch === null) return read;
    read.push(...batch);
  }
}

/** Lets every promise that can settle do so. */
const settled = () => new Promise(setImmediate);

describe("the usage of a child's turn", () => {
  it("is told as it is spent, and at the end only what was not told before", async () => {
    const turns = new ChildTurns();
    const { turn, end, told, ref } = start(turns);
    turn.receive(modelCall(usage(10, 1)));
    turn.receive(modelCall(usage(20, 2)));
    await settled();
    expect(told).toEqual([
      ["m", usage(10, 1)],
      ["m", usage(20, 2)],
    ]);
    end(usage(35, 3));
    expect((await turns.result(ref)).usage).toEqual(usage(35, 3));
    expect(told.slice(2)).toEqual([["m", usage(5, 0)]]);
  });

  it("is told by model, and what calls cost that came to nothing and what was spent beside them with it", async () => {
    const turns = new ChildTurns();
    const { turn, end, told, ref } = start(turns);
    turn.receive(modelCall(usage(10), "one"));
    turn.receive({
      type: "model_call_failed",
      modelCallId: "t1#1",
      step: 1,
      code: "plugin_assistant_response",
      usage: usage(4),
      record: recordOf(usage(4), "two"),
      at: 1,
    });
    turn.receive({ type: "usage", source: "titles", model: "three", usage: usage(2), at: 1 });
    const calls = [recordOf(usage(10), "one"), recordOf(usage(4), "two"), recordOf(usage(1), "two")];
    end(usage(15), calls);
    await turns.result(ref);
    expect(told).toEqual([
      ["one", usage(10)],
      ["two", usage(4)],
      ["three", usage(2)],
      ["two", usage(1)],
    ]);
  });

  it("is not told again when everything was told", async () => {
    const turns = new ChildTurns();
    const { turn, end, told, ref } = start(turns, { streams: false });
    turn.receive(modelCall(usage(10)));
    end(usage(10));
    await turns.result(ref);
    expect(told).toEqual([["m", usage(10)]]);
  });

  it("is told before the result, and also when the turn fails", async () => {
    const turns = new ChildTurns();
    const { turn, fail, told, ref } = start(turns);
    const result = codeOf(turns.result(ref));
    turn.receive(modelCall(usage(7)));
    fail(new TroupeError("worker_lost", "gone"));
    expect(await result).toBe("worker_lost");
    expect(told).toEqual([["m", usage(7)]]);
  });
});

describe("the events of a child's turn", () => {
  it("come in batches as they happen, and end with it", async () => {
    const turns = new ChildTurns();
    const { turn, end, ref } = start(turns);
    const first = turns.events(ref);
    turn.receive(callStarted(0));
    expect(await first).toEqual([callStarted(0)]);
    turn.receive(delta("a"));
    turn.receive(delta("b"));
    await settled();
    expect(await turns.events(ref)).toEqual([delta("ab")]);
    end();
    expect((await turns.events(ref))?.map(({ type }) => type)).toEqual(["turn_finished"]);
    expect(await turns.events(ref)).toBeNull();
  });

  it("of a slow reader are kept up to 1,024; a gap says how many are missing, and the last are there", async () => {
    const turns = new ChildTurns();
    const { turn, end, ref } = start(turns);
    for (let step = 0; step < 1_100; step++) turn.receive(callStarted(step));
    end();
    await turns.result(ref);
    const read = await readAll(turns, ref);
    expect(read).toHaveLength(1_025);
    expect(read.slice(0, 2)).toEqual([{ type: "gap", missed: 77, at: 1 }, callStarted(77)]);
    expect(read.at(-1)).toMatchObject({ type: "turn_finished" });
  });

  it("can be read to their end after the result was fetched, by any number of readers, and are then forgotten", async () => {
    const turns = new ChildTurns();
    const { turn, end, ref } = start(turns);
    const readers = [readAll(turns, ref), readAll(turns, ref)];
    await settled();
    turn.receive(callStarted(0));
    end();
    await turns.result(ref);
    expect((await Promise.all(readers)).flat().map(({ type }) => type)).toEqual([
      "model_call_started",
      "turn_finished",
    ]);
    expect(await turns.events(ref)).toBeNull();
  });

  it("end without an error when the turn fails: the result says why", async () => {
    const turns = new ChildTurns();
    const { fail, ref } = start(turns);
    const reading = readAll(turns, ref);
    fail(new TroupeError("worker_lost", "gone"));
    expect(await reading).toEqual([]);
    expect(await codeOf(turns.result(ref))).toBe("worker_lost");
  });

  it("of a turn nobody reads are not kept", async () => {
    const turns = new ChildTurns();
    const { turn, end, ref } = start(turns, { streams: false });
    turn.receive(delta("unread"));
    end();
    await settled();
    expect(await turns.events(ref)).toBeNull();
    expect((await turns.result(ref)).text).toBe("hi");
  });
});

describe("a child's turn", () => {
  it("gives its result once; then it is unknown to await and to cancel", async () => {
    const turns = new ChildTurns();
    const { end, ref } = start(turns);
    end();
    expect((await turns.result(ref)).text).toBe("hi");
    expect(await codeOf(turns.result(ref))).toBe("turn_unknown");
    expect(thrownBy(() => turns.cancel(ref))).toBe("turn_unknown");
  });

  it("is cancelled by whoever started it, and by nobody else", async () => {
    const turns = new ChildTurns();
    const { cancelled, ref } = start(turns, { turnId: "one" });
    expect(thrownBy(() => turns.cancel({ from: "stranger", turnId: "one" }))).toBe("turn_unknown");
    expect(await codeOf(turns.result({ from: "stranger", turnId: "one" }))).toBe("turn_unknown");
    expect(await turns.events({ from: "stranger", turnId: "one" })).toBeNull();
    turns.cancel(ref);
    expect(cancelled).toEqual(["The session that started the turn cancelled it."]);
  });

  it("excludes another in the same session until it has ended, and another of the same name of its starter", async () => {
    const turns = new ChildTurns();
    const { end } = start(turns, { turnId: "one" });
    expect(thrownBy(() => start(turns, { turnId: "two" }))).toBe("turn_running");
    expect(thrownBy(() => start(turns, { turnId: "two", from: "other" }))).toBe("turn_running");
    expect(thrownBy(() => start(turns, { turnId: "one", sessionId: "elsewhere" }))).toBe("turn_exists");
    expect(start(turns, { turnId: "one", sessionId: "elsewhere", from: "other" }).ref.turnId).toBe("one");
    end();
    await settled();
    expect(start(turns, { turnId: "one" }).ref.turnId).toBe("one");
  });

  it("takes over a name whose turn has ended, and a wait for the old one does not take the new one away", async () => {
    const turns = new ChildTurns();
    const old = start(turns, { turnId: "one" });
    const oldResult = turns.result(old.ref);
    old.end(usage(1));
    await settled();
    const next = start(turns, { turnId: "one" });
    expect((await oldResult).usage).toEqual(usage(1));
    next.end(usage(2));
    expect((await turns.result(next.ref)).usage).toEqual(usage(2));
  });

  it("has a name of its own when it is given none", () => {
    const turns = new ChildTurns();
    const names = ["a", "b"].map((sessionId) => start(turns, { sessionId }).ref.turnId);
    expect(new Set(names).size).toBe(2);
  });

  it("that could not be started leaves nothing behind", () => {
    const turns = new ChildTurns();
    const failing = () =>
      turns.start({
        from: "parent",
        sessionId: "child",
        turnId: "one",
        streams: true,
        limited: false,
        onCallEnded: () => undefined,
        start: () => {
          throw new TroupeError("closed", "closed");
        },
        onUsage: () => undefined,
      });
    expect(thrownBy(failing)).toBe("closed");
    expect(start(turns, { turnId: "one" }).ref.turnId).toBe("one");
  });

  it("that ended and nobody fetched is kept, until 256 others have ended after it", async () => {
    const turns = new ChildTurns();
    for (let n = 0; n < 257; n++) {
      start(turns, { turnId: `t${n}` }).end();
      await settled();
    }
    expect(await codeOf(turns.result({ from: "parent", turnId: "t0" }))).toBe("turn_unknown");
    expect((await turns.result({ from: "parent", turnId: "t1" })).text).toBe("hi");
  });

  it("that is still running is never forgotten for others that have ended", async () => {
    const turns = new ChildTurns();
    const running = start(turns, { sessionId: "slow" });
    for (let n = 0; n < 300; n++) {
      start(turns).end();
      await settled();
    }
    running.end();
    expect((await turns.result(running.ref)).text).toBe("hi");
  });
});
