import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { createAiSdkModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import type { Model } from "../../../src/model/index.js";
import { calm, collect, collectFailure, requestOf } from "./requests.js";
import { anthropic, openai, startWireServer } from "./wire-server.js";

const JSON_BODY = { "content-type": "application/json" };

/** What both providers must do alike when they are asked for whole answers. */
const providers = [
  {
    name: "openai-compatible",
    bodies: openai,
    modelAt: (url: string): Model =>
      createAiSdkModel(createOpenAICompatible({ name: "local", baseURL: url })("tiny"), systemClock, { stream: false }),
    answer: [
      { type: "reasoning_delta", blockId: "reasoning-0", text: "Let me think." },
      { type: "text", blockId: "text-1", text: "Hello world" },
      { type: "tool_call", callId: "call_a", toolName: "weather", argsText: '{"city":"Oslo"}' },
      {
        type: "finish",
        reason: "tool_calls",
        usage: { inputTokens: 20, outputTokens: 7, cacheReadTokens: 4, cacheWriteTokens: 0, reasoningTokens: 3 },
        evidence: { servedModel: "tiny", responseId: "c8", finishReason: "tool_calls" },
      },
    ],
  },
  {
    name: "anthropic",
    bodies: anthropic,
    modelAt: (url: string): Model =>
      createAiSdkModel(createAnthropic({ apiKey: "test", baseURL: url })("claude-test"), systemClock, {
        stream: false,
      }),
    answer: [
      { type: "reasoning_delta", blockId: "reasoning-0", text: "Let me think." },
      { type: "reasoning_end", blockId: "reasoning-0", metadata: { anthropic: { signature: "c2lnbmVk" } } },
      { type: "text", blockId: "text-1", text: "Hello world" },
      { type: "tool_call", callId: "toolu_a", toolName: "weather", argsText: '{"city":"Oslo"}' },
      {
        type: "finish",
        reason: "tool_calls",
        usage: { inputTokens: 20, outputTokens: 7, cacheReadTokens: 3, cacheWriteTokens: 5, reasoningTokens: 0 },
        evidence: { servedModel: "claude-test", responseId: "msg_2", finishReason: "tool_use" },
      },
    ],
  },
];

describe.each(providers)("a model of $name that is not streamed", ({ bodies, modelAt, answer }) => {
  it("gives reasoning, text, tool calls and usage whole, and asks for no stream", async () => {
    await using server = await startWireServer({ headers: JSON_BODY, body: bodies.whole });
    expect(await collect(modelAt(server.url).stream(requestOf(), calm()))).toEqual(answer);
    expect(server.requests[0]).not.toHaveProperty("stream");
  });

  it("reads Retry-After on 429", async () => {
    const headers = { ...JSON_BODY, "retry-after": "3" };
    await using server = await startWireServer({ status: 429, headers, body: bodies.error("slow down") });
    const { error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(error).toMatchObject({
      code: "model_rate_limited",
      retryable: true,
      details: { status: 429, retryAfterMs: 3000 },
      message: "The model's provider answered 429: slow down",
    });
    expect(server.requests).toHaveLength(1);
  });

  it.each([
    [500, "model_server_error", true, "internal"],
    [401, "model_auth_failed", false, "bad key"],
    [404, "model_request_invalid", false, "no such model"],
    [400, "context_overflow", false, "prompt is too long: 210000 tokens > 200000 maximum"],
  ])("fails on %i with %s, retryable %s", async (status, code, retryable, message) => {
    await using server = await startWireServer({ status, headers: JSON_BODY, body: bodies.error(message) });
    const { error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(error).toMatchObject({ code, retryable, details: { status } });
  });

  it("fails with model_unreachable when nobody listens", async () => {
    const server = await startWireServer({ body: "" });
    await server[Symbol.asyncDispose]();
    const { error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(error).toMatchObject({ code: "model_unreachable", retryable: true });
  });

  it("fails with model_stream_malformed when the answer is not JSON", async () => {
    await using server = await startWireServer({ headers: JSON_BODY, body: "<html>gateway</html>" });
    const { error } = await collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    expect(error).toMatchObject({ code: "model_stream_malformed", retryable: true });
  });

  it("fails with model_stream_cut when the connection breaks in the middle", async () => {
    await using server = await startWireServer({ headers: JSON_BODY, body: bodies.whole.slice(0, 80), hold: true });
    const failing = collectFailure(modelAt(server.url).stream(requestOf(), calm()));
    await server.held;
    server.cut();
    expect(await failing).toMatchObject({ events: [], error: { code: "model_stream_cut", retryable: true } });
  });

  it("closes the connection when its signal is aborted", async () => {
    await using server = await startWireServer({ headers: JSON_BODY, body: bodies.whole.slice(0, 80), hold: true });
    const controller = new AbortController();
    const failing = collectFailure(modelAt(server.url).stream(requestOf(), controller.signal));
    await server.held;
    controller.abort();
    expect(await failing).toMatchObject({ events: [], error: { code: "aborted" } });
    await server.leftByClient;
  });
});
