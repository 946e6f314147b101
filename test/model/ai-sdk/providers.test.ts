import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { AttemptRecord, ModelEvent } from "../../../src/kernel/index.js";
import { createAiSdkModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import { type Model, streamWithRetry } from "../../../src/model/index.js";
import { hastyClock } from "../../support/manual-clock.js";
import { calm, collect, collectFailure, requestOf, textIn } from "./requests.js";
import { anthropicBody, openaiBody } from "./wire-bodies.js";
import { anthropic, openai, startWireServer } from "./wire-server.js";

/** Arguments that are still being written are shown and then given up for the whole call. */
const isWhole = ({ type }: ModelEvent) => type !== "tool_input_delta";

/** What both providers must do alike, each in its own words. */
const providers = [
  {
    name: "openai-compatible",
    bodies: openai,
    said: openaiBody,
    modelAt: (url: string): Model =>
      createAiSdkModel(
        createOpenAICompatible({ name: "local", baseURL: url, includeUsage: true })("tiny"),
        systemClock,
      ),
    finished: {
      type: "finish",
      reason: "stop",
      usage: { inputTokens: 20, outputTokens: 7, cacheReadTokens: 4, cacheWriteTokens: 0, reasoningTokens: 3 },
      evidence: { servedModel: "tiny", responseId: "c1", finishReason: "stop" },
    },
    textBlock: "text-txt-0",
    calls: [
      { type: "tool_call", callId: "call_a", toolName: "weather", argsText: '{"city":"Oslo"}' },
      { type: "tool_call", callId: "call_b", toolName: "clock", argsText: '{"zone":"CET"}' },
    ],
  },
  {
    name: "anthropic",
    bodies: anthropic,
    said: anthropicBody,
    modelAt: (url: string): Model =>
      createAiSdkModel(createAnthropic({ apiKey: "test", baseURL: url })("claude-test"), systemClock),
    finished: {
      type: "finish",
      reason: "stop",
      usage: { inputTokens: 20, outputTokens: 7, cacheReadTokens: 3, cacheWriteTokens: 5, reasoningTokens: 2 },
      evidence: { servedModel: "claude-test", responseId: "msg_1", finishReason: "end_turn" },
    },
    textBlock: "text-0",
    calls: [
      { type: "tool_call", callId: "toolu_a", toolName: "weather", argsText: '{"city":"Oslo"}' },
      { type: "tool_call", callId: "toolu_b", toolName: "clock", argsText: "{}" },
    ],
  },
];

describe.each(providers)("a model of $name", ({ bodies, said, modelAt, finished, textBlock, calls }) => {
  it("streams text and reports usage", async () => {
    await using server = await startWireServer({ body: bodies.text });
    expect(await collect(modelAt(server.url).stream(requestOf(), calm()))).toEqual([
      { type: "text_delta", blockId: textBlock, text: "Hello" },
      { type: "text_delta", blockId: textBlock, text: " world" },
      { type: "text_end", blockId: textBlock },
      finished,
    ]);
  });

  it("puts parallel tool calls together from their pieces", async () => {
    await using server = await startWireServer({ body: bodies.toolCalls });
    const events = await collect(modelAt(server.url).stream(requestOf(), calm()));
    expect(events.slice(0, -1).filter(isWhole)).toEqual(calls);
    expect(events.at(-1)).toMatchObject({ type: "finish", reason: "tool_calls" });
  });

  it.each([
    ["seconds", { "retry-after": "3" }, 3000],
    ["milliseconds", { "retry-after-ms": "250", "retry-after": "1" }, 250],
    ["a date long past", { "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT" }, 0],
  ])("fails with model_rate_limited on 429 and reads Retry-After in %s", async (_, headers, retryAfterMs) => {
    await using server = await startWireServer({ status: 429, headers, body: bodies.error("slow down") });
    const { events, error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(events).toEqual([]);
    expect(error).toMatchObject({
      code: "model_rate_limited",
      retryable: true,
      details: { status: 429, retryAfterMs },
      message: "The model's provider answered 429: slow down",
      cause: { statusCode: 429 },
    });
    expect(server.requests).toHaveLength(1);
  });

  it("leaves out the waiting time when the provider names none", async () => {
    await using server = await startWireServer({ status: 429, body: bodies.error("slow down") });
    const { error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(error).toHaveProperty("details", { status: 429 });
  });

  it.each([
    [500, "model_server_error", true, "internal"],
    [529, "model_server_error", true, "overloaded"],
    [401, "model_auth_failed", false, "bad key"],
    [403, "model_auth_failed", false, "not allowed"],
    [400, "model_request_invalid", false, "unknown field"],
    [404, "model_request_invalid", false, "no such model"],
    [400, "context_overflow", false, "This model's maximum context length is 8192 tokens"],
    [400, "context_overflow", false, "prompt is too long: 210000 tokens > 200000 maximum"],
    [400, "model_request_invalid", false, "Rate limit for context window tokens per minute"],
  ])("fails on %i with %s, retryable %s: %s", async (status, code, retryable, message) => {
    await using server = await startWireServer({ status, body: bodies.error(message) });
    const { error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(error).toMatchObject({ code, retryable, details: { status }, cause: { statusCode: status } });
  });

  it("fails with model_unreachable when nobody listens", async () => {
    const server = await startWireServer({ body: "" });
    await server[Symbol.asyncDispose]();
    const { error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(error).toMatchObject({ code: "model_unreachable", retryable: true, cause: { name: "AI_APICallError" } });
  });

  it("fails with model_stream_cut when the connection breaks in the middle", async () => {
    await using server = await startWireServer({ body: bodies.unfinished, hold: true });
    const events = modelAt(server.url).stream(requestOf(), calm())[Symbol.asyncIterator]();
    expect(await events.next()).toMatchObject({ value: { type: "text_delta", text: "Hel" } });
    server.cut();
    await expect(events.next()).rejects.toMatchObject({ code: "model_stream_cut", retryable: true });
  });

  it("fails with model_stream_cut when the stream ends without its last event", async () => {
    await using server = await startWireServer({ body: bodies.unfinished });
    const { events, error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(textIn(events)).toBe("Hel");
    expect(error).toMatchObject({ code: "model_stream_cut", retryable: true });
  });

  // turn §8.75
  it("makes a tool call anew when it broke off in the middle of its arguments, and only that one", async () => {
    const call = (id: string, city: string) => ({ calls: [{ id, name: "weather", args: { city } }] });
    const broken = said({ ...call("a", "Somewhere"), unfinished: true });
    await using server = await startWireServer({ body: broken }, { body: said(call("b", "Oslo")) });
    const attempts: AttemptRecord[] = [];
    const stream = streamWithRetry(modelAt(server.url), requestOf(), {
      signal: calm(),
      onAttempt: (record) => attempts.push(record),
      clock: hastyClock(),
    });
    expect((await collect(stream)).slice(0, -1).filter(isWhole)).toEqual([
      { type: "tool_call", callId: "b", toolName: "weather", argsText: '{"city":"Oslo"}' },
    ]);
    expect(attempts).toMatchObject([
      { outcome: "failed", outputStarted: false, error: { code: "model_stream_cut" }, retry: { counted: true } },
      { outcome: "completed", outputStarted: true },
    ]);
  });

  it("fails with model_stream_cut when the stream is empty", async () => {
    await using server = await startWireServer({ body: "" });
    const { events, error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(events).toEqual([]);
    expect(error).toMatchObject({ code: "model_stream_cut" });
  });

  it("fails with model_stream_malformed when an event is not JSON", async () => {
    await using server = await startWireServer({ body: bodies.malformed });
    const { events, error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(textIn(events)).toBe("Hel");
    expect(error).toMatchObject({ code: "model_stream_malformed" });
  });

  it("fails with model_stream_malformed when already the first event is not JSON", async () => {
    await using server = await startWireServer({ body: bodies.malformedFirst });
    const { events, error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(events).toEqual([]);
    expect(error).toMatchObject({ code: "model_stream_malformed" });
  });

  it("understands an error the provider sends inside the stream", async () => {
    await using server = await startWireServer({ body: bodies.errorEvent });
    const { events, error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(textIn(events)).toBe("Hel");
    expect(error).toMatchObject({ code: "model_server_error", message: expect.stringMatching(/overloaded/i) });
  });

  it("closes the connection when its signal is aborted", async () => {
    await using server = await startWireServer({ body: bodies.unfinished, hold: true });
    const controller = new AbortController();
    const events = modelAt(server.url).stream(requestOf(), controller.signal)[Symbol.asyncIterator]();
    await events.next();
    const next = events.next();
    controller.abort();
    await expect(next).rejects.toMatchObject({ code: "aborted" });
    await server.leftByClient;
  });

  it("closes the connection when the reader leaves early", async () => {
    await using server = await startWireServer({ body: bodies.unfinished, hold: true });
    for await (const _ of modelAt(server.url).stream(requestOf(), calm())) break;
    await server.leftByClient;
  });

  it("closes the connection when it gives up on a response that is still open", async () => {
    await using server = await startWireServer({ body: bodies.malformedFirst, hold: true });
    await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    await server.leftByClient;
  });

  it("makes no request when its signal was aborted before", async () => {
    await using server = await startWireServer({ body: bodies.text });
    const { error } = await collectFailure(modelAt(server.url).stream(requestOf(), AbortSignal.abort()));
    expect(error).toMatchObject({ code: "aborted" });
    expect(server.requests).toEqual([]);
  });
});
