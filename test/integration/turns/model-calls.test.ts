import { type Activity, type ModelCallRecord, type ScriptStep, scriptedModel, type Turn } from "troupe";
import { describe, expect, test } from "vitest";
import { expectWellFormed, only, untimed } from "../../support/activities.js";
import { collect, EMPTY_OBJECT, fixture, PATIENT, plugin, startTroupe } from "../../support/runtime.js";

const usage = (inputTokens: number, outputTokens: number) => ({
  inputTokens,
  outputTokens,
  cacheReadTokens: 0,
  cacheWriteTokens: 0,
  reasoningTokens: 0,
});
const tools = { look: { description: "Looks", inputSchema: EMPTY_OBJECT, execute: () => "rain" } };

/** A session whose model says these steps in every turn. */
async function sessionWith(...steps: readonly ScriptStep[]) {
  const troupe = await startTroupe({ sessionWorkers: 1, model: scriptedModel({ turns: [steps] }), tools });
  return troupe.session("s");
}

/** Everything about a turn; its activities are checked for what holds of all. */
async function watched(turn: Turn, onActivity: (activity: Activity) => void = () => undefined) {
  const activities: Activity[] = [];
  for await (const activity of turn) {
    activities.push(activity);
    onActivity(activity);
  }
  expectWellFormed(activities);
  return { activities, result: await turn };
}

/** Records are the same every time but for how long things took. */
const timeless = (records: readonly ModelCallRecord[]) =>
  records.map((record) => ({
    ...record,
    attempts: record.attempts.map(({ durationMs: _ms, firstTokenMs: _first, ...attempt }) => attempt),
  }));

describe("the model calls of a turn", () => {
  test("are recorded with what they cost, the same live and in the result", async () => {
    const session = await sessionWith(
      { toolCalls: [{ tool: "look" }], usage: usage(10, 5) },
      { text: "It rains.", usage: usage(20, 7) },
    );
    const { activities, result } = await watched(session.turn("?"));
    const answered = (step: number, spent: object) => ({
      modelCallId: `t1#${step}`,
      step,
      model: "scripted",
      route: "scripted",
      attempts: [{ attempt: 1, outcome: "completed", outputStarted: true, usage: spent }],
    });
    expect(timeless(result.modelCallRecords)).toEqual([answered(0, usage(10, 5)), answered(1, usage(20, 7))]);
    expect(only(activities, "model_call_finished").map(({ record }) => record)).toEqual(result.modelCallRecords);
    for (const { attempts } of result.modelCallRecords) {
      const [{ durationMs = -1, firstTokenMs = -1 } = {}] = attempts;
      expect(firstTokenMs).toBeGreaterThanOrEqual(0);
      expect(durationMs).toBeGreaterThanOrEqual(firstTokenMs);
    }
  });

  test("are counted in the statistics by how long their first token took", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 2,
      model: scriptedModel({ id: "quick", turns: [[{ text: "hi" }]] }),
    });
    expect((await troupe.stats()).firstToken).toEqual({});
    await Promise.all(["a", "b", "c"].map(async (id) => (await troupe.session(id)).turn("?")));
    const { firstToken, hooks } = await troupe.stats();
    expect(firstToken).toEqual({
      quick: {
        count: 3,
        p50: expect.any(Number),
        p90: expect.any(Number),
        p99: expect.any(Number),
        max: expect.any(Number),
      },
    });
    expect(hooks).toEqual({});
  });

  // turn §8.76
  test("tell once of every attempt that is made again, and keep it", async () => {
    const session = await sessionWith({ text: "at last", fail: { status: 429, retryAfterMs: 1, attempts: 2 } });
    const { activities, result } = await watched(session.turn("?"));
    expect(untimed(only(activities, "model_retry"))).toEqual(
      [1, 2].map((attempt) => ({
        type: "model_retry",
        modelCallId: "t1#0",
        step: 0,
        attempt,
        code: "model_rate_limited",
        delayMs: 1,
      })),
    );
    const failed = {
      outcome: "failed",
      outputStarted: false,
      error: { code: "model_rate_limited" },
      retry: { delayMs: 1, counted: true },
    };
    expect(result.modelCallRecords[0]?.attempts).toMatchObject([
      { attempt: 1, ...failed },
      { attempt: 2, ...failed },
      { attempt: 3, outcome: "completed", outputStarted: true },
    ]);
    expect(result.text).toBe("at last");
    expect(result.modelCalls).toBe(1);
  });

  // turn §8.75
  test("that break off keep what had come, make no call of it, and are not made again", async () => {
    const session = await sessionWith({
      reasoning: "hm",
      chunks: ["half ", "an answer"],
      toolCalls: [{ tool: "look" }],
      fail: { code: "model_stream_cut", message: "gone", afterChunks: 2 },
    });
    const { activities, result } = await watched(session.turn("?"));
    expect(result.outcome).toMatchObject({ reason: "provider_error", code: "model_stream_cut" });
    const [failed] = only(activities, "model_call_failed");
    expect(failed).toMatchObject({ code: "model_stream_cut", record: result.modelCallRecords[0] });
    expect(timeless(result.modelCallRecords)).toEqual([
      {
        modelCallId: "t1#0",
        step: 0,
        model: "scripted",
        route: "scripted",
        attempts: [
          {
            attempt: 1,
            outcome: "failed",
            outputStarted: true,
            error: { code: "model_stream_cut", message: "gone" },
            partial: [
              { type: "reasoning", text: "hm" },
              { type: "text", text: "half " },
            ],
          },
        ],
      },
    ]);
    expect(result.toolCalls).toEqual([]);
    // The user's message, and nothing of the answer.
    expect((await session.view()).messageCount).toBe(1);
  });

  // turn §8.87
  test("that are cancelled leave nothing of their answer in the history", async () => {
    const session = await sessionWith({ chunks: ["half ", "an answer"], chunkDelayMs: 60_000 });
    const turn = session.turn("?");
    const { result } = await watched(turn, ({ type }) => {
      if (type === "text_delta") turn.cancel("enough");
    });
    expect(result.outcome).toEqual({ type: "stopped", reason: "cancelled", code: "cancelled", message: "enough" });
    expect(result.text).toBe("");
    expect(result.modelCallRecords).toMatchObject([
      { attempts: [{ outcome: "aborted", outputStarted: true, partial: [{ type: "text", text: "half " }] }] },
    ]);
    expect((await session.view()).messageCount).toBe(1);
  });

  // turn §8.86
  test("end a cancelled turn with one result: the one that is told is the one that is given", async () => {
    const session = await sessionWith({ text: "never", delayMs: 60_000 });
    const turn = session.turn("?");
    const { activities, result } = await watched(turn, ({ type }) => {
      if (type === "model_call_started") turn.cancel("enough");
    });
    expect(untimed(only(activities, "turn_finished"))).toEqual([{ type: "turn_finished", result }]);
    expect(result.revision).toBe((await session.view()).revision);
  });

  test("of the same turn have the same records wherever it runs", async () => {
    const steps: ScriptStep[] = [
      { toolCalls: [{ tool: "look" }], fail: { status: 429, retryAfterMs: 1, attempts: 1 } },
      { text: "It rains." },
    ];
    const [one, other] = [await sessionWith(...steps), await sessionWith(...steps)];
    const [first, again] = [await one.turn("?"), await other.turn("?")];
    expect(timeless(first.modelCallRecords)).toEqual(timeless(again.modelCallRecords));
  });

  test("that a plugin ends are answers, and recorded as ended", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: scriptedModel({ turns: [[{ chunks: ["one ", "two"], chunkDelayMs: 60_000 }]] }),
      plugins: [{ module: plugin("scriptable"), options: { assistantStream: "abortStream" }, ...PATIENT }],
    });
    const { activities, result } = await watched((await troupe.session("s")).turn("?"));
    expect(result.outcome).toEqual({ type: "finished", text: "one " });
    const [attempt, ...more] = result.modelCallRecords[0]?.attempts ?? [];
    expect(attempt).toMatchObject({ attempt: 1, outcome: "aborted", outputStarted: true });
    // What came of it is the answer, not half of one.
    expect(attempt).not.toHaveProperty("partial");
    expect(more).toEqual([]);
    expect(only(activities, "model_call_finished")).toHaveLength(1);
  });
});

describe("what a model counts", () => {
  // turn §8.10
  test("that is no count fails the call and stays out of the ledger; the next turn works", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      model: scriptedModel({
        turns: [
          [{ text: "hi", usage: { inputTokens: 1.5 } }],
          [{ text: "hi", usage: { cacheReadTokens: 2 ** 53, outputTokens: 1 } }],
          [{ text: "fine", usage: usage(3, 1) }],
        ],
      }),
    });
    const session = await troupe.session("s");
    for (const code of ["token_usage_invalid", "token_usage_overflow"]) {
      const { activities, result } = await watched(session.turn("?"));
      expect(result.outcome).toMatchObject({ type: "stopped", reason: "provider_error", code });
      expect(only(activities, "model_call_failed")).toMatchObject([{ code }]);
      expect(result.usage).toEqual(usage(0, 0));
    }
    expect((await session.turn("?")).text).toBe("fine");
    expect((await session.view()).ledger).toEqual([{ source: "turn", model: "scripted", usage: usage(3, 1) }]);
  });

  // turn §8.9
  test("tells an answer without room from one that was too long", async () => {
    const full = { finish: "length", usage: usage(960, 0) } as const;
    const troupe = await startTroupe({
      sessionWorkers: 1,
      maxContextTokens: 1_000,
      model: scriptedModel({ turns: [[full], [{ text: "half", finish: "length", usage: usage(960, 40) }]] }),
    });
    const session = await troupe.session("s");
    expect((await session.turn("?")).outcome).toMatchObject({ reason: "provider_error", code: "context_overflow" });
    // turn §8.8
    expect((await session.turn("?")).outcome).toMatchObject({ reason: "incomplete", code: "output_limit" });
    // Two questions, no answer.
    expect((await session.view()).messageCount).toBe(2);
  });
});

describe("streamed text", () => {
  const textIn = (activities: readonly Activity[]) =>
    only(activities, "text_delta")
      .map(({ text }) => text)
      .join("");

  // turn §8.19
  test("is told once: not again when the answer is complete", async () => {
    const session = await sessionWith({ chunks: ["one ", "two ", "three"] });
    const { activities, result } = await watched(session.turn("?"));
    expect(textIn(activities)).toBe("one two three");
    expect(result.text).toBe("one two three");
  });

  // turn §8.83
  test("reaches a reader that was slow whole, before what came after it", async () => {
    const session = await sessionWith(
      { chunks: ["a", "b", "c"], toolCalls: [{ tool: "look" }] },
      { chunks: ["d", "e"] },
    );
    const turn = session.turn("?");
    const reading = turn[Symbol.asyncIterator]();
    await turn;
    const activities: Activity[] = [];
    for (let next = await reading.next(); next.done !== true; next = await reading.next()) activities.push(next.value);
    expectWellFormed(activities);
    expect(activities.map((activity) => (activity.type === "text_delta" ? activity.text : activity.type))).toEqual([
      "turn_started",
      "model_call_started",
      "abc",
      "model_call_finished",
      "tool_call_started",
      "tool_call_finished",
      "model_call_started",
      "de",
      "model_call_finished",
      "turn_finished",
    ]);
  });

  // turn §8.93
  test("that nobody reads any more is generated to its end, and stored", async () => {
    const session = await sessionWith({ chunks: ["one ", "two ", "three"], chunkDelayMs: 1 });
    const observing = (async () => {
      for await (const { event } of session.observe()) if (event.type === "activity") break;
    })();
    // The observer is there when the worker has answered something asked behind it.
    await session.view();
    const turn = session.turn("?");
    for await (const { type } of turn) if (type === "text_delta") break;
    await observing;
    expect(await turn).toMatchObject({ text: "one two three", revision: 1 });
    expect((await session.view()).messageCount).toBe(2);
  });

  // turn §8.84
  test("without end starves nobody: others are served, and it can be cancelled", async () => {
    const troupe = await startTroupe({ sessionWorkers: 1, model: fixture("models/endless.mjs") });
    const turn = (await troupe.session("s")).turn("?");
    const ended = turn.then(({ outcome }) => outcome);
    // Opened by the one thread that is streaming.
    expect((await (await troupe.session("other")).view()).turnIndex).toBe(0);
    turn.cancel("enough");
    expect(await ended).toMatchObject({ type: "stopped", reason: "cancelled" });
  });
});

describe("the activities of a turn", () => {
  test("are plain JSON of a pinned shape, whatever happens in it", async () => {
    const troupe = await startTroupe({
      sessionWorkers: 1,
      tools,
      model: scriptedModel({
        turns: [
          [
            { reasoning: "hm", text: "Looking.", toolCalls: [{ tool: "look" }, { tool: "nowhere" }] },
            { toolCalls: [{ tool: "look", argsText: "{broken" }] },
            { text: "done" },
          ],
        ],
      }),
      plugins: [
        {
          module: plugin("scriptable"),
          options: { beforeTurn: "enqueueUser", checkpoint: "emit", assistantResponse: "throwOnce" },
          ...PATIENT,
        },
      ],
    });
    const session = await troupe.session("s");
    const failed = await collect(session.turn("?"));
    expectWellFormed(failed);
    expect(only(failed, "model_call_failed")).toMatchObject([
      { code: "plugin_assistant_response", usage: expect.anything(), record: { attempts: [{ outcome: "completed" }] } },
    ]);
    const activities = await collect(session.turn("?"));
    expectWellFormed(activities);
    expect(new Set(activities.map(({ type }) => type))).toEqual(
      new Set([
        "turn_started",
        "messages_injected",
        "model_call_started",
        "reasoning_delta",
        "text_delta",
        "model_call_finished",
        "tool_call_started",
        "tool_call_finished",
        "plugin_event",
        "turn_finished",
      ]),
    );
  });
});
