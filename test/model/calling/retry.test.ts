import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { type AttemptRecord, type ModelEvent, NO_USAGE, TroupeError, type Usage } from "../../../src/kernel/index.js";
import type { ScriptFailure } from "../../../src/model/boundary/script.js";
import type { RetryNotice } from "../../../src/model/calling/call-model.js";
import { createScriptedModel, type Model, type ScriptStep, streamWithRetry } from "../../../src/model/index.js";
import { hastyClock, ManualClock } from "../../support/manual-clock.js";
import { calm, collect, collectFailure, requestOf, textIn } from "../ai-sdk/requests.js";

/** Runs a scripted step under retry with a sleep that only takes notes. */
function attempt(step: ScriptStep, signal = calm()) {
  const slept: number[] = [];
  const notices: RetryNotice[] = [];
  const stream = streamWithRetry(createScriptedModel({ turns: [[step]] }, systemClock), requestOf(), {
    signal,
    onRetry: (notice) => notices.push(notice),
    clock: hastyClock(slept),
  });
  return { stream, slept, notices };
}

describe("a model call is repeated", () => {
  it.each(["model_unreachable", "model_stream_cut", "model_stream_malformed"])(
    "after %s with nothing shown, waiting 2, 4 and 8 seconds",
    async (code) => {
      const { stream, slept, notices } = attempt({ text: "at last", fail: { code, attempts: 3 } });
      expect(textIn(await collect(stream))).toBe("at last");
      expect(slept).toEqual([2000, 4000, 8000]);
      expect(notices).toMatchObject([
        { attempt: 1, delayMs: 2000, error: { code } },
        { attempt: 2, delayMs: 4000, error: { code } },
        { attempt: 3, delayMs: 8000, error: { code } },
      ]);
    },
  );

  it("after a rate limit that says when to come back, waiting that long", async () => {
    const { stream, slept } = attempt({ text: "ok", fail: { status: 429, retryAfterMs: 1234, attempts: 1 } });
    expect(textIn(await collect(stream))).toBe("ok");
    expect(slept).toEqual([1234]);
  });

  it("after a minute when the provider asks for more", async () => {
    const { stream, slept } = attempt({ text: "ok", fail: { status: 429, retryAfterMs: 600_000, attempts: 1 } });
    await collect(stream);
    expect(slept).toEqual([60_000]);
  });

  it("three times at most, waiting never more than ten seconds", async () => {
    const { stream, slept } = attempt({ fail: { code: "model_unreachable" } });
    expect((await collectFailure(stream)).error).toMatchObject({ code: "model_unreachable" });
    expect(slept).toEqual([2000, 4000, 8000]);

    const patient: number[] = [];
    const model = createScriptedModel({ turns: [[{ fail: { code: "model_unreachable" } }]] }, systemClock);
    await collectFailure(
      streamWithRetry(model, requestOf(), { signal: calm(), maxAttempts: 6, clock: hastyClock(patient) }),
    );
    expect(patient).toEqual([2000, 4000, 8000, 10_000, 10_000]);
  });
});

// turn §8.77
describe("waiting because the provider asks for it", () => {
  const limited = (retryAfterMs: number, attempts?: number): ScriptStep => ({
    text: "ok",
    fail: { status: 429, retryAfterMs, ...(attempts !== undefined && { attempts }) },
  });

  it("costs no attempt from one second on: eight times, then it counts", async () => {
    const { stream, slept } = attempt(limited(1_000));
    expect((await collectFailure(stream)).error).toMatchObject({ code: "model_rate_limited" });
    expect(slept).toEqual(Array.from({ length: 8 + 3 }, () => 1_000));
  });

  it("costs no attempt for ninety seconds altogether", async () => {
    const { stream, slept } = attempt(limited(40_000));
    await collectFailure(stream);
    expect(slept).toEqual(Array.from({ length: 2 + 3 }, () => 40_000));
  });

  it("costs an attempt when it is short, or was over before it was asked for", async () => {
    for (const ms of [999, 0]) {
      const { stream, slept } = attempt(limited(ms));
      await collectFailure(stream);
      expect(slept).toEqual([ms, ms, ms]);
    }
  });
});

describe("every attempt is recorded", () => {
  const recorded = async (
    step: ScriptStep,
    read: (stream: AsyncIterable<ModelEvent>) => Promise<unknown> = collect,
  ) => {
    const records: AttemptRecord[] = [];
    const stream = streamWithRetry(createScriptedModel({ turns: [[step]] }, systemClock), requestOf(), {
      signal: calm(),
      onAttempt: ({ durationMs, ...record }) => records.push({ ...record, durationMs: durationMs >= 0 ? 0 : -1 }),
      clock: hastyClock(),
    });
    await read(stream).catch(() => undefined);
    return records;
  };

  it("with its error and what followed, and the last with its usage", async () => {
    const usage = { inputTokens: 1, outputTokens: 2, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 };
    const records = await recorded({ text: "ok", usage, fail: { code: "model_unreachable", attempts: 1 } });
    expect(records).toEqual([
      {
        attempt: 1,
        outcome: "failed",
        durationMs: 0,
        outputStarted: false,
        error: { code: "model_unreachable", message: expect.any(String) },
        retry: { delayMs: 2_000, counted: true },
      },
      { attempt: 2, outcome: "completed", durationMs: 0, outputStarted: true, usage },
    ]);
  });

  // turn §8.75
  it("also one that failed after it began to answer, which is not repeated", async () => {
    const [record, ...more] = await recorded({
      chunks: ["a", "b"],
      fail: { code: "model_stream_cut", afterChunks: 1 },
    });
    expect(record).toMatchObject({ outcome: "failed", outputStarted: true, error: { code: "model_stream_cut" } });
    expect(record).not.toHaveProperty("retry");
    expect(more).toEqual([]);
  });

  it("also one whose reader left", async () => {
    const leave = async (stream: AsyncIterable<ModelEvent>) => {
      for await (const _ of stream) return;
    };
    expect(await recorded({ chunks: ["a", "b"] }, leave)).toEqual([
      { attempt: 1, outcome: "aborted", durationMs: 0, outputStarted: true },
    ]);
  });
});

describe("what a model counted", () => {
  const counting = (usage: Partial<Record<keyof Usage, unknown>>): Model => ({
    id: "miscounts",
    async *stream() {
      yield { type: "text_delta", blockId: "0", text: "said" };
      // As wrong as a provider can be.
      yield { type: "finish", reason: "stop", usage: { ...NO_USAGE, ...usage } as Usage };
    },
  });

  // turn §8.10
  it.each([
    ["negative", { outputTokens: -4 }, "token_usage_invalid"],
    ["a fraction", { inputTokens: 0.5 }, "token_usage_invalid"],
    ["beyond counting", { inputTokens: 2 ** 60 }, "token_usage_overflow"],
  ])("fails the call when it is %s, is not recorded and not asked for again", async (_, usage, code) => {
    const records: AttemptRecord[] = [];
    const stream = streamWithRetry(counting(usage), requestOf(), {
      signal: calm(),
      onAttempt: (record) => records.push(record),
      clock: hastyClock(),
    });
    const { events, error } = await collectFailure(stream);
    expect(textIn(events)).toBe("said");
    expect(error).toMatchObject({ code });
    expect(records).toMatchObject([{ outcome: "failed", outputStarted: true, error: { code } }]);
    expect(records[0]).not.toHaveProperty("usage");
  });
});

describe("what a provider says of a failure", () => {
  it("is passed on and recorded without secrets", async () => {
    const records: AttemptRecord[] = [];
    const model: Model = {
      id: "leaks",
      // biome-ignore lint/correctness/useYield: it fails before its first event
      async *stream() {
        throw new Error("401 for Authorization: Bearer abcdef0123456789");
      },
    };
    const options = { signal: calm(), clock: hastyClock(), onAttempt: (record: AttemptRecord) => records.push(record) };
    const { error } = await collectFailure(streamWithRetry(model, requestOf(), options));
    const shown = "401 for Authorization: [hidden]";
    expect(error).toMatchObject({ code: "model_failed", message: shown, cause: { message: shown } });
    expect(records[0]?.error).toEqual({ code: "model_failed", message: shown });
  });
});

// turn §8.76
describe("what was shown", () => {
  it("is never taken back: whatever attempts do, one repeated showed nothing, and is told of exactly once", async () => {
    const behaviour = fc.record({
      shows: fc.nat({ max: 3 }),
      ends: fc.constantFrom(
        "finish",
        "model_unreachable",
        "model_stream_cut",
        "model_stream_malformed",
        "model_failed",
      ),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(behaviour, { minLength: 1, maxLength: 6 }), async (attempts) => {
        let made = 0;
        const model: Model = {
          id: "moody",
          async *stream() {
            const { shows, ends } = attempts[made++ % attempts.length] as (typeof attempts)[number];
            for (let n = 0; n < shows; n++) yield { type: "text_delta", blockId: "0", text: `${made}` };
            if (ends !== "finish") throw new TroupeError(ends, "As the test wants it.");
            yield { type: "finish", reason: "stop", usage: NO_USAGE };
          },
        };
        const shown: string[] = [];
        const records: AttemptRecord[] = [];
        const stream = streamWithRetry(model, requestOf(), {
          signal: calm(),
          onRetry: () => shown.push("retry"),
          onAttempt: (record) => records.push(record),
          clock: hastyClock(),
        });
        try {
          for await (const event of stream) if (event.type === "text_delta") shown.push(event.text);
        } catch {
          // How it ends is not the point.
        }
        const retried = records.filter(({ retry }) => retry !== undefined);
        expect(shown.filter((entry) => entry === "retry")).toHaveLength(retried.length);
        expect(retried.every(({ outputStarted }) => !outputStarted)).toBe(true);
        expect(shown.slice(0, retried.length)).toEqual(retried.map(() => "retry"));
        expect(records).toHaveLength(made);
      }),
    );
  });
});

describe("a model call is not repeated", () => {
  it("once an event was shown", async () => {
    const { stream, slept } = attempt({ chunks: ["a", "b"], fail: { code: "model_stream_cut", afterChunks: 1 } });
    const { events, error } = await collectFailure(stream);
    expect(textIn(events)).toBe("a");
    expect(error).toMatchObject({ code: "model_stream_cut" });
    expect(slept).toEqual([]);
  });

  // turn §8.78
  it.each<[string, ScriptFailure]>([
    ["a rate limit without a time", { status: 429 }],
    ["a server error", { status: 500 }],
    ["a server error with a time", { status: 503, retryAfterMs: 10 }],
    ["a refused key", { status: 401 }],
    ["an invalid request", { status: 400 }],
    ["anything unknown", { code: "model_failed", retryable: true }],
  ])("after %s", async (_, fail) => {
    const { stream, slept } = attempt({ text: "never", fail });
    expect((await collectFailure(stream)).events).toEqual([]);
    expect(slept).toEqual([]);
  });

  it("after an abort, which also ends the wait between attempts", async () => {
    const controller = new AbortController();
    const model = createScriptedModel(
      { turns: [[{ text: "x", fail: { code: "model_unreachable", attempts: 1 } }]] },
      systemClock,
    );
    const { events, error } = await collectFailure(
      // This time never passes by itself.
      streamWithRetry(model, requestOf(), {
        clock: new ManualClock(),
        signal: controller.signal,
        onRetry: () => queueMicrotask(() => controller.abort()),
      }),
    );
    expect(events).toEqual([]);
    expect(error).toMatchObject({ code: "aborted" });
  });

  it("and keeps the reason of an abort that has a code of its own", async () => {
    const controller = new AbortController();
    controller.abort(new TroupeError("turn_timeout", "too slow"));
    const { error } = await collectFailure(attempt({ text: "x" }, controller.signal).stream);
    expect(error).toMatchObject({ code: "turn_timeout" });
  });
});

describe("a model of the host's own", () => {
  const run = (model: Model) =>
    streamWithRetry(model, requestOf(), { signal: calm(), maxAttempts: 1, clock: hastyClock() });

  it("that ends without finish is a cut stream", async () => {
    const model: Model = {
      id: "mute",
      async *stream() {
        yield { type: "text_delta", blockId: "0", text: "half" };
      },
    };
    const { events, error } = await collectFailure(run(model));
    expect(textIn(events)).toBe("half");
    expect(error).toMatchObject({ code: "model_stream_cut" });
  });

  it("that throws anything fails with model_failed and keeps the cause", async () => {
    const bug = new TypeError("undefined is not a function");
    const model: Model = {
      id: "buggy",
      // biome-ignore lint/correctness/useYield: it fails before its first event
      async *stream() {
        throw bug;
      },
    };
    expect((await collectFailure(run(model))).error).toMatchObject({ code: "model_failed", cause: bug });
  });

  it("is told to stop when the reader leaves", async () => {
    let stopped = false;
    const model: Model = {
      id: "endless",
      async *stream() {
        try {
          while (true) yield { type: "text_delta", blockId: "0", text: "more" };
        } finally {
          stopped = true;
        }
      },
    };
    for await (const _ of run(model)) break;
    expect(stopped).toBe(true);
  });

  it("is not listened to after finish", async () => {
    const model: Model = {
      id: "chatty",
      async *stream() {
        yield { type: "finish", reason: "stop", usage: NO_USAGE };
        yield { type: "text_delta", blockId: "0", text: "one more thing" };
      },
    };
    expect(await collect(run(model))).toEqual([{ type: "finish", reason: "stop", usage: NO_USAGE }]);
  });
});
