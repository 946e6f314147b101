import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import {
  type AttemptRecord,
  DEFAULT_RETRY,
  type ModelEvent,
  type ModelRetry,
  NO_USAGE,
  TroupeError,
  type Usage,
} from "../../../src/kernel/index.js";
import type { ScriptFailure } from "../../../src/model/boundary/script.js";
import type { RetryNotice } from "../../../src/model/calling/call-model.js";
import { createScriptedModel, type Model, type ScriptStep, streamWithRetry } from "../../../src/model/index.js";
import { hastyClock, ManualClock } from "../../support/manual-clock.js";
import { calm, collect, collectFailure, requestOf, textIn } from "../ai-sdk/requests.js";

/** A clock on which no time passes, and chance always says this. */
const chancy = (chance: number, slept: number[]) => ({ ...hastyClock(slept), random: () => chance });

/** Runs a scripted step under retry with a sleep that only takes notes, and the longest waits there are. */
function attempt(step: ScriptStep, { signal = calm(), retry = {} as ModelRetry, chance = 1 } = {}) {
  const slept: number[] = [];
  const notices: RetryNotice[] = [];
  const stream = streamWithRetry(createScriptedModel({ turns: [[step]] }, systemClock), requestOf(), {
    signal,
    retry: { ...DEFAULT_RETRY, ...retry },
    onRetry: (notice) => notices.push(notice),
    clock: chancy(chance, slept),
  });
  return { stream, slept, notices };
}

describe("a model call is repeated", () => {
  it.each([
    ["model_unreachable", [500, 1000, 2000]],
    ["model_stream_cut", [250, 500, 1000]],
    ["model_stream_malformed", [250, 500, 1000]],
  ])(
    "after %s with nothing shown, waiting longer each time; not long for a provider that is there: up to %j ms",
    async (code, delays) => {
      const { stream, slept, notices } = attempt({ text: "at last", fail: { code, attempts: 3 } });
      expect(textIn(await collect(stream))).toBe("at last");
      expect(slept).toEqual(delays);
      expect(notices).toMatchObject(delays.map((delayMs, n) => ({ attempt: n + 1, delayMs, error: { code } })));
    },
  );

  it.each([408, 425, 429, 500, 502, 503, 504, 529])("after status %i", async (status) => {
    const { stream, slept } = attempt({ text: "ok", fail: { status, attempts: 1 } });
    expect(textIn(await collect(stream))).toBe("ok");
    expect(slept).toEqual([500]);
  });

  it("after a share of the wait that chance decides", async () => {
    const { stream, slept } = attempt({ text: "ok", fail: { status: 503, attempts: 3 } }, { chance: 0.3 });
    await collect(stream);
    expect(slept).toEqual([150, 300, 600]);
  });

  it.each([429, 503])("after %i as long as the provider asks for", async (status) => {
    const { stream, slept } = attempt({ text: "ok", fail: { status, retryAfterMs: 1234, attempts: 1 } });
    expect(textIn(await collect(stream))).toBe("ok");
    expect(slept).toEqual([1234]);
  });

  it("after half a minute when the provider asks for more", async () => {
    const { stream, slept } = attempt({ text: "ok", fail: { status: 429, retryAfterMs: 600_000, attempts: 1 } });
    await collect(stream);
    expect(slept).toEqual([30_000]);
  });

  it("three times at most, also when the provider says when to come back", async () => {
    for (const fail of [{ code: "model_unreachable" }, { status: 429, retryAfterMs: 1_000 }]) {
      const { stream, slept } = attempt({ fail });
      await collectFailure(stream);
      expect(slept).toHaveLength(3);
    }
  });

  it("as often, on what and as long as its policy says", async () => {
    const retry = { maxAttempts: 6, on: [418], baseDelayMs: 10, maxDelayMs: 50 };
    const { stream, slept } = attempt({ fail: { status: 418 } }, { retry });
    await collectFailure(stream);
    expect(slept).toEqual([10, 20, 40, 50, 50]);
    const other = attempt({ fail: { status: 500 } }, { retry });
    await collectFailure(other.stream);
    expect(other.slept).toEqual([]);
  });

  it("only as long as no wait goes past the total", async () => {
    const clock = new ManualClock();
    const waits: number[] = [];
    const model = createScriptedModel({ turns: [[{ fail: { status: 429, retryAfterMs: 400 } }]] }, clock);
    const failing = collectFailure(
      streamWithRetry(model, requestOf(), {
        signal: calm(),
        clock,
        retry: { ...DEFAULT_RETRY, maxAttempts: 100, totalMs: 1_000 },
        onRetry: ({ delayMs }) => waits.push(delayMs),
      }),
    );
    await clock.elapse(5_000);
    await failing;
    // A third wait would end at 1,200.
    expect(waits).toEqual([400, 400]);
  });
});

describe("a model that has no attempts left", () => {
  const named = (id: string, step: ScriptStep) => createScriptedModel({ id, turns: [[step]] }, systemClock);
  const twice = { ...DEFAULT_RETRY, maxAttempts: 2 };

  /** Who was asked, in order, and how it went on. */
  const asked = async (models: readonly [Model, ...Model[]]) => {
    const said: string[] = [];
    const [first, ...others] = models;
    const stream = streamWithRetry(first, requestOf(), {
      signal: calm(),
      clock: hastyClock(),
      retry: twice,
      fallbacks: others.map((model) => ({ model, retry: twice })),
      onAttempt: ({ outcome }, { id }) => said.push(`${id} ${outcome}`),
      onFallback: ({ from, to, error }) => said.push(`${from.id} > ${to.id}: ${error.code}`),
    });
    const text = await collect(stream).then(textIn, (error: TroupeError) => error.code);
    return [...said, text];
  };

  it("is followed by the next one, with attempts of its own", async () => {
    const down = named("down", { fail: { status: 503 } });
    const late = named("late", { text: "hello", fail: { status: 503, attempts: 1 } });
    expect(await asked([down, late])).toEqual([
      "down failed",
      "down failed",
      "down > late: model_server_error",
      "late failed",
      "late completed",
      "hello",
    ]);
  });

  it.each<[string, ScriptFailure]>([
    ["model_auth_failed", { status: 401 }],
    ["model_request_invalid", { status: 400 }],
    ["model_failed", { code: "model_failed" }],
    ["context_overflow", { code: "context_overflow" }],
  ])("because of %s is not asked twice", async (code, fail) => {
    expect(await asked([named("a", { fail }), named("b", { text: "hello" })])).toEqual([
      "a failed",
      `a > b: ${code}`,
      "b completed",
      "hello",
    ]);
  });

  it("and is the last fails with its own error", async () => {
    const models = [named("a", { fail: { status: 401 } }), named("b", { fail: { status: 400 } })] as const;
    expect(await asked(models)).toEqual(["a failed", "a > b: model_auth_failed", "b failed", "model_request_invalid"]);
  });

  it("is not followed once something of its answer came, or when the runtime itself refuses", async () => {
    const broken = named("a", { chunks: ["x", "y"], fail: { status: 503, afterChunks: 1 } });
    const refused = named("a", { fail: { code: "attachment_missing" } });
    const other = named("b", { text: "hello" });
    expect(await asked([broken, other])).toEqual(["a failed", "model_server_error"]);
    expect(await asked([refused, other])).toEqual(["a failed", "attachment_missing"]);
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
      onAttempt: ({ durationMs, firstTokenMs, ...record }) =>
        records.push({
          ...record,
          durationMs: durationMs >= 0 ? 0 : -1,
          ...(firstTokenMs !== undefined && { firstTokenMs: firstTokenMs <= durationMs ? 0 : -1 }),
        }),
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
        retry: { delayMs: expect.any(Number), counted: true },
      },
      { attempt: 2, outcome: "completed", durationMs: 0, outputStarted: true, firstTokenMs: 0, usage },
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

  it("with how long its first text took, however long the rest", async () => {
    const clock = new ManualClock();
    const model: Model = {
      id: "slow",
      async *stream() {
        clock.advance(40);
        for (const text of ["a", "b", "c"]) {
          yield { type: "text", blockId: "0", text };
          clock.advance(1_000);
        }
        yield { type: "finish", reason: "stop", usage: NO_USAGE };
      },
    };
    const records: AttemptRecord[] = [];
    const stream = streamWithRetry(model, requestOf(), {
      signal: calm(),
      onAttempt: (record) => records.push(record),
      clock,
    });
    await collect(stream);
    expect(records).toMatchObject([{ firstTokenMs: 40, durationMs: 3_040 }]);
  });

  it("also one whose reader left", async () => {
    const leave = async (stream: AsyncIterable<ModelEvent>) => {
      for await (const _ of stream) return;
    };
    expect(await recorded({ chunks: ["a", "b"] }, leave)).toEqual([
      { attempt: 1, outcome: "aborted", durationMs: 0, outputStarted: true, firstTokenMs: 0 },
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

  it.each<[string, ScriptFailure]>([
    ["a status the policy does not name", { status: 501 }],
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
    controller.abort(new TroupeError("turn_suspended", "too slow"));
    const { error } = await collectFailure(attempt({ text: "x" }, { signal: controller.signal }).stream);
    expect(error).toMatchObject({ code: "turn_suspended" });
  });
});

describe("a model of the host's own", () => {
  const run = (model: Model) =>
    streamWithRetry(model, requestOf(), {
      signal: calm(),
      retry: { ...DEFAULT_RETRY, maxAttempts: 1 },
      clock: hastyClock(),
    });

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
