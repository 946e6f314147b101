import { ReadableStream } from "node:stream/web";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { type AiSdkLanguageModel, createAiSdkModel, isAiSdkLanguageModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import { calm, collect, collectFailure, requestOf } from "./requests.js";

const usage = { inputTokens: { total: 5 }, outputTokens: { total: 2 } };
const finishReason = { unified: "stop", raw: "end_turn" };
const finished = {
  type: "finish",
  reason: "stop",
  usage: { inputTokens: 5, outputTokens: 2, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
  evidence: { finishReason: "end_turn" },
};

/** A model that cannot stream, of whatever version. */
function generating(doGenerate: () => Promise<unknown>, specificationVersion = "v3"): AiSdkLanguageModel {
  return { specificationVersion, provider: "test", modelId: "whole", doGenerate };
}

const answering = (...content: unknown[]) =>
  createAiSdkModel(
    generating(async () => ({ content, finishReason, usage, warnings: [] })),
    systemClock,
  );

const eventsOf = (...content: unknown[]) => collect(answering(...content).stream(requestOf(), calm()));

describe("an AI SDK model that cannot stream", () => {
  it.each(["v2", "v3", "v4"])("is a language model in version %s", (version) => {
    expect(isAiSdkLanguageModel(generating(async () => ({}), version))).toBe(true);
  });

  it.each([
    ["of an unknown version", generating(async () => ({}), "v1")],
    ["without any call", { specificationVersion: "v3", provider: "test", modelId: "mute" }],
  ])("is none %s", (_, model) => {
    expect(isAiSdkLanguageModel(model)).toBe(false);
  });

  it("answers each text whole, in its place among reasoning and tool calls", async () => {
    expect(
      await eventsOf(
        { type: "reasoning", text: "hmm", providerMetadata: { anthropic: { signature: "sig" } } },
        { type: "text", text: "Looking." },
        { type: "tool-call", toolCallId: "c1", toolName: "weather", input: '{"city":"Oslo"}' },
        { type: "text", text: "And more." },
      ),
    ).toEqual([
      { type: "reasoning_delta", blockId: "reasoning-0", text: "hmm" },
      { type: "reasoning_end", blockId: "reasoning-0", metadata: { anthropic: { signature: "sig" } } },
      { type: "text", blockId: "text-1", text: "Looking." },
      { type: "tool_call", callId: "c1", toolName: "weather", argsText: '{"city":"Oslo"}' },
      { type: "text", blockId: "text-3", text: "And more." },
      finished,
    ]);
  });

  it("ends reasoning only where there is metadata to keep, with text or without", async () => {
    const redacted = { anthropic: { redactedData: "opaque" } };
    expect(
      await eventsOf({ type: "reasoning", text: "plain" }, { type: "reasoning", text: "", providerMetadata: redacted }),
    ).toEqual([
      { type: "reasoning_delta", blockId: "reasoning-0", text: "plain" },
      { type: "reasoning_end", blockId: "reasoning-1", metadata: redacted },
      finished,
    ]);
  });

  it("leaves out empty text, and has what the provider ran itself, sources and files as parts", async () => {
    expect(
      await eventsOf(
        { type: "text", text: "" },
        { type: "tool-call", toolCallId: "s1", toolName: "web_search", input: "{}", providerExecuted: true },
        { type: "tool-result", toolCallId: "s1", toolName: "web_search", result: "found" },
        { type: "source", sourceType: "url", id: "1", url: "https://example.org" },
        { type: "file", mediaType: "image/png", data: "AQID" },
      ),
    ).toEqual([
      { type: "part", part: { type: "provider_tool_call", callId: "s1", toolName: "web_search", args: {} } },
      { type: "part", part: { type: "provider_tool_result", callId: "s1", toolName: "web_search", value: "found" } },
      { type: "part", part: { type: "source", id: "1", source: { kind: "url", url: "https://example.org" } } },
      { type: "file", mediaType: "image/png", data: new Uint8Array([1, 2, 3]) },
      finished,
    ]);
  });

  it("reads missing arguments of a tool call as an empty object and keeps its metadata", async () => {
    const providerMetadata = { google: { thoughtSignature: "abc" } };
    expect(
      (await eventsOf({ type: "tool-call", toolCallId: "c", toolName: "clock", input: " ", providerMetadata }))[0],
    ).toEqual({ type: "tool_call", callId: "c", toolName: "clock", argsText: "{}", metadata: providerMetadata });
  });

  it("reports usage and reason as version 2 says them", async () => {
    const flat = { inputTokens: 11, outputTokens: 5, totalTokens: 16, cachedInputTokens: 4, reasoningTokens: 2 };
    const answer = { content: [], finishReason: "length", usage: flat, warnings: [] };
    const model = createAiSdkModel(
      generating(async () => answer, "v2"),
      systemClock,
    );
    expect(await collect(model.stream(requestOf(), calm()))).toEqual([
      {
        type: "finish",
        reason: "length",
        usage: { inputTokens: 11, outputTokens: 5, cacheReadTokens: 4, cacheWriteTokens: 0, reasoningTokens: 2 },
      },
    ]);
  });
});

describe("which call of an AI SDK model is made", () => {
  const streamParts = [
    { type: "text-delta", id: "0", delta: "streamed" },
    { type: "finish", finishReason, usage },
  ];
  const both: AiSdkLanguageModel = {
    ...generating(async () => ({ content: [{ type: "text", text: "generated" }], finishReason, usage })),
    doStream: async () => ({ stream: ReadableStream.from(streamParts) }),
  };
  const firstOf = async (options?: { stream: boolean }) =>
    (await collect(createAiSdkModel(both, systemClock, options).stream(requestOf(), calm())))[0];

  it("is the stream when the model can, unless told otherwise", async () => {
    expect(await firstOf()).toEqual({ type: "text_delta", blockId: "text-0", text: "streamed" });
    expect(await firstOf({ stream: true })).toEqual({ type: "text_delta", blockId: "text-0", text: "streamed" });
    expect(await firstOf({ stream: false })).toEqual({ type: "text", blockId: "text-0", text: "generated" });
  });

  it("is refused when the model has no such call", () => {
    const { doGenerate: _, ...streaming } = both;
    expect(() => createAiSdkModel(streaming, systemClock, { stream: false })).toThrow(
      "has no doGenerate(), which stream: false needs",
    );
    expect(() =>
      createAiSdkModel(
        generating(async () => ({})),
        systemClock,
        { stream: true },
      ),
    ).toThrow("test:whole has no doStream(), which stream: true needs");
  });
});

describe("failures of an AI SDK model that cannot stream", () => {
  const failure = async (doGenerate: () => Promise<unknown>) =>
    (await collectFailure(createAiSdkModel(generating(doGenerate), systemClock).stream(requestOf(), calm()))).error;

  it("keep whatever was thrown as the cause", async () => {
    const bug = new RangeError("boom");
    expect(await failure(() => Promise.reject(bug))).toMatchObject({ code: "model_failed", cause: bug });
    expect(
      await failure(() => {
        throw bug;
      }),
    ).toMatchObject({ code: "model_failed", cause: bug });
  });

  it.each([
    ["nothing", undefined, "no list of content"],
    ["an answer without content", { finishReason, usage }, "no list of content"],
    ["content that is text", { content: "hello", finishReason, usage }, "no list of content"],
    ["a part that is no part", { content: ["hello"], finishReason, usage }, "content that is no part"],
    ["a part that is null", { content: [null], finishReason, usage }, "content that is no part"],
  ])("of %s are model_stream_malformed", async (_, answer, what) => {
    expect(await failure(async () => answer)).toMatchObject({
      code: "model_stream_malformed",
      retryable: true,
      message: `The model's stream could not be read: it holds ${what}.`,
    });
  });
});

describe("aborting an AI SDK model that cannot stream", () => {
  it("ends the wait even when the model ignores its signal", async () => {
    const controller = new AbortController();
    const deaf = createAiSdkModel(
      generating(() => new Promise(() => undefined)),
      systemClock,
    );
    const failing = collectFailure(deaf.stream(requestOf(), controller.signal));
    setImmediate(() => controller.abort());
    expect(await failing).toMatchObject({ events: [], error: { code: "aborted" } });
  });

  it("before the call asks nothing", async () => {
    let asked = false;
    const model = createAiSdkModel(
      generating(async () => {
        asked = true;
      }),
      systemClock,
    );
    const { error } = await collectFailure(model.stream(requestOf(), AbortSignal.abort()));
    expect(error).toMatchObject({ code: "aborted" });
    expect(asked).toBe(false);
  });

  it("between two events leaves out the rest", async () => {
    const controller = new AbortController();
    const model = answering({ type: "text", text: "one" }, { type: "text", text: "two" });
    const events = model.stream(requestOf(), controller.signal)[Symbol.asyncIterator]();
    expect(await events.next()).toMatchObject({ value: { text: "one" } });
    controller.abort();
    await expect(events.next()).rejects.toMatchObject({ code: "aborted" });
  });
});
