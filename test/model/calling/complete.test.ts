import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { type ModelEvent, type ModelRequest, NO_USAGE } from "../../../src/kernel/index.js";
import { completeOnce, createScriptedModel, type Model, type ScriptDirectAnswer } from "../../../src/model/index.js";
import { hastyClock } from "../../support/manual-clock.js";
import { calm, input } from "../ai-sdk/requests.js";

const question = { sessionId: "s1", turnId: "t1", system: "", turn: [input("hello")], direct: { source: "titles" } };

/** Completes with a script and a sleep that only takes notes. */
function complete(answer: ScriptDirectAnswer, signal = calm()) {
  const slept: number[] = [];
  const retried: string[] = [];
  const completing = completeOnce(
    createScriptedModel({ turns: [[]], direct: [answer], chunkSize: 3 }, systemClock),
    question,
    {
      signal,
      onRetry: ({ error }) => retried.push(error.code),
      clock: { ...hastyClock(slept), random: () => 0.5 },
    },
  );
  return { completing, slept, retried };
}

describe("completing once", () => {
  it.each([true, false])("gives the whole response, streamed or not (%s)", async (stream) => {
    const usage = { inputTokens: 3, outputTokens: 4, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 1 };
    expect(await complete({ stream, reasoning: "Hm, hm.", text: "You said {input}", usage }).completing).toEqual({
      parts: [
        { type: "reasoning", text: "Hm, hm." },
        { type: "text", text: "You said hello" },
      ],
      reason: "stop",
      usage,
    });
  });

  it("asks as the first step, without history and tools, unless they are given", async () => {
    const asked: ModelRequest[] = [];
    const model: Model = {
      id: "curious",
      async *stream(request) {
        asked.push(request);
        yield { type: "finish", reason: "stop", usage: NO_USAGE };
      },
    };
    const tools = [{ name: "look", description: "Looks", inputSchema: {} }];
    await completeOnce(model, question, { signal: calm(), clock: systemClock });
    await completeOnce(
      model,
      { ...question, step: 2, history: [input("earlier")], tools },
      { signal: calm(), clock: systemClock },
    );
    expect(asked).toEqual([
      { ...question, step: 0, history: [], tools: [] },
      { ...question, step: 2, history: [input("earlier")], tools },
    ]);
  });

  it("tells the reason the model gave, an error too", async () => {
    expect((await complete({ text: "x", finish: "error" }).completing).reason).toBe("error");
  });

  it("is repeated where a stream would be, and tells so", async () => {
    const { completing, slept, retried } = complete({
      text: "at last",
      fail: { code: "model_unreachable", attempts: 2 },
    });
    expect((await completing).parts).toEqual([{ type: "text", text: "at last" }]);
    expect(slept).toEqual([250, 500]);
    expect(retried).toEqual(["model_unreachable", "model_unreachable"]);
  });

  // turn §8.75
  it("is not repeated after it broke off in the middle: what had come is paid for", async () => {
    const fail = { code: "model_stream_cut", afterChunks: 2, attempts: 1 };
    const { completing, slept } = complete({ text: "abcdefgh", fail });
    await expect(completing).rejects.toMatchObject({ code: "model_stream_cut" });
    expect(slept).toEqual([]);
  });

  it("is not repeated when the stream ended in the middle without finish", async () => {
    const half: ModelEvent = { type: "text_delta", blockId: "0", text: "half" };
    let calls = 0;
    const model: Model = {
      id: "forgetful",
      async *stream() {
        calls++;
        yield half;
      },
    };
    const completing = completeOnce(model, question, { signal: calm(), clock: hastyClock() });
    await expect(completing).rejects.toMatchObject({ code: "model_stream_cut" });
    expect(calls).toBe(1);
  });

  it("is not repeated after a failure that would come again", async () => {
    const { completing, slept } = complete({ fail: { status: 400, message: "no such model" } });
    await expect(completing).rejects.toMatchObject({ code: "model_request_invalid", message: "no such model" });
    expect(slept).toEqual([]);
  });

  it("ends with its signal", async () => {
    const controller = new AbortController();
    const { completing } = complete({ text: "late", delayMs: 3_600_000 }, controller.signal);
    controller.abort();
    await expect(completing).rejects.toMatchObject({ code: "aborted" });
  });
});
