import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { DirectOutput, Message, ModelRequest } from "../../../src/kernel/index.js";
import { createAiSdkModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import { calm, collect, input, requestOf } from "./requests.js";
import { anthropic, openai, startWireServer } from "./wire-server.js";

const openaiAt = (url: string) =>
  createAiSdkModel(createOpenAICompatible({ name: "local", baseURL: url, includeUsage: true })("tiny"), systemClock);
const anthropicAt = (url: string) =>
  createAiSdkModel(createAnthropic({ apiKey: "test", baseURL: url })("claude-test"), systemClock);

const assistant = (...parts: Message["parts"]): Message => ({ id: "a", role: "assistant", parts });

const conversation: ModelRequest = requestOf({
  system: "Be brief.",
  history: [
    input("Hi", "t0"),
    assistant({ type: "text", text: "Hello!" }),
    { id: "empty", role: "assistant", parts: [{ type: "text", text: "" }] },
  ],
  turn: [
    input("Weather in Oslo and Bergen?"),
    assistant(
      { type: "text", text: "Looking." },
      { type: "tool_call", callId: "c1", toolName: "weather", args: { city: "Oslo" } },
      { type: "tool_call", callId: "c2", toolName: "weather", args: "{broken" },
    ),
    {
      id: "r",
      role: "tool",
      parts: [
        { type: "tool_result", callId: "c1", toolName: "weather", status: "success", text: "rain" },
        { type: "tool_result", callId: "c2", toolName: "weather", status: "failure", text: "not JSON" },
      ],
    },
  ],
  tools: [
    {
      name: "weather",
      description: "Tells the weather",
      inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  ],
});

describe("an OpenAI-compatible request", () => {
  it("says the whole conversation: system, inputs, tool calls, tool results and tools", async () => {
    await using server = await startWireServer({ body: openai.text });
    await collect(openaiAt(server.url).stream(conversation, calm()));
    expect(server.requests[0]).toEqual({
      model: "tiny",
      stream: true,
      stream_options: { include_usage: true },
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Hi" },
        { role: "assistant", content: "Hello!" },
        { role: "user", content: "Weather in Oslo and Bergen?" },
        {
          role: "assistant",
          content: "Looking.",
          tool_calls: [
            { id: "c1", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } },
            { id: "c2", type: "function", function: { name: "weather", arguments: "{}" } },
          ],
        },
        { role: "tool", tool_call_id: "c1", content: "rain" },
        { role: "tool", tool_call_id: "c2", content: "not JSON" },
      ],
      tools: [
        {
          type: "function",
          function: {
            name: "weather",
            description: "Tells the weather",
            parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
          },
        },
      ],
      tool_choice: "auto",
    });
  });

  it("streams reasoning and sends it back as reasoning_content", async () => {
    await using server = await startWireServer({ body: openai.reasoning });
    const model = openaiAt(server.url);
    expect((await collect(model.stream(requestOf(), calm()))).slice(0, -1)).toEqual([
      { type: "reasoning_delta", blockId: "reasoning-reasoning-0", text: "Let me" },
      { type: "reasoning_delta", blockId: "reasoning-reasoning-0", text: " think." },
      { type: "text_delta", blockId: "text-txt-0", text: "42" },
      { type: "text_end", blockId: "text-txt-0" },
    ]);
    const answer = assistant({ type: "reasoning", text: "Let me think." }, { type: "text", text: "42" });
    await collect(model.stream(requestOf({ history: [input("?", "t0"), answer] }), calm()));
    expect(server.requests[1]).toMatchObject({
      messages: [
        { role: "user", content: "?" },
        { role: "assistant", content: "42", reasoning_content: "Let me think." },
        { role: "user", content: "hello" },
      ],
    });
  });

  it("gets a new block for text that continues after reasoning, though the provider reuses the id", async () => {
    await using server = await startWireServer({ body: openai.interleaved });
    const events = await collect(openaiAt(server.url).stream(requestOf(), calm()));
    expect(events.slice(0, -1)).toEqual([
      { type: "text_delta", blockId: "text-txt-0", text: "first" },
      { type: "text_end", blockId: "text-txt-0" },
      { type: "reasoning_delta", blockId: "reasoning-reasoning-0", text: "wait" },
      { type: "text_delta", blockId: "text-txt-0-2", text: "second" },
      { type: "text_end", blockId: "text-txt-0-2" },
    ]);
  });
});

describe("a direct request for JSON", () => {
  const schema = { type: "object", properties: { title: { type: "string" } }, required: ["title"] };
  const structuredAt = (url: string) =>
    createAiSdkModel(
      createOpenAICompatible({ name: "local", baseURL: url, supportsStructuredOutputs: true })("tiny"),
      systemClock,
    );
  const sent = async (output: DirectOutput | undefined) => {
    await using server = await startWireServer({ body: openai.text });
    const direct = { source: "titles", ...(output && { output }) };
    await collect(structuredAt(server.url).stream(requestOf({ direct }), calm()));
    return server.requests[0];
  };

  it("passes schema and name on as the response format", async () => {
    expect(await sent({ type: "json", schema, name: "title" })).toMatchObject({
      response_format: { type: "json_schema", json_schema: { name: "title", schema } },
    });
  });

  it("asks for any JSON without a schema", async () => {
    expect(await sent({ type: "json" })).toMatchObject({ response_format: { type: "json_object" } });
  });

  it("asks for no format when it wants text, says nothing or is no direct request", async () => {
    expect(await sent({ type: "text" })).not.toHaveProperty("response_format");
    expect(await sent(undefined)).not.toHaveProperty("response_format");
    await using server = await startWireServer({ body: openai.text });
    await collect(structuredAt(server.url).stream(requestOf(), calm()));
    expect(server.requests[0]).not.toHaveProperty("response_format");
  });

  it("reaches Anthropic too", async () => {
    await using server = await startWireServer({ body: anthropic.text });
    const output: DirectOutput = { type: "json", schema };
    await collect(anthropicAt(server.url).stream(requestOf({ direct: { source: "titles", output } }), calm()));
    expect(server.requests[0]).toMatchObject({
      output_config: { format: { type: "json_schema", schema: { properties: { title: { type: "string" } } } } },
    });
  });
});

describe("an Anthropic request", () => {
  it("says the whole conversation: system, inputs, tool calls, tool results and tools", async () => {
    await using server = await startWireServer({ body: anthropic.text });
    await collect(anthropicAt(server.url).stream(conversation, calm()));
    expect(server.requests[0]).toMatchObject({
      model: "claude-test",
      stream: true,
      system: [{ type: "text", text: "Be brief." }],
      messages: [
        { role: "user", content: [{ type: "text", text: "Hi" }] },
        { role: "assistant", content: [{ type: "text", text: "Hello!" }] },
        { role: "user", content: [{ type: "text", text: "Weather in Oslo and Bergen?" }] },
        {
          role: "assistant",
          content: [
            { type: "text", text: "Looking." },
            { type: "tool_use", id: "c1", name: "weather", input: { city: "Oslo" } },
            { type: "tool_use", id: "c2", name: "weather", input: {} },
          ],
        },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "c1", content: "rain" },
            { type: "tool_result", tool_use_id: "c2", content: "not JSON", is_error: true },
          ],
        },
      ],
      tools: [
        {
          name: "weather",
          description: "Tells the weather",
          input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
        },
      ],
      tool_choice: { type: "auto" },
    });
  });

  it("sends signed and redacted thinking back exactly as they came", async () => {
    await using server = await startWireServer({ body: anthropic.thinking });
    const model = anthropicAt(server.url);
    expect((await collect(model.stream(requestOf(), calm()))).slice(0, -1)).toEqual([
      { type: "reasoning_delta", blockId: "reasoning-0", text: "Let me" },
      { type: "reasoning_delta", blockId: "reasoning-0", text: " think." },
      { type: "reasoning_end", blockId: "reasoning-0", metadata: { anthropic: { signature: "c2lnbmVk" } } },
      { type: "reasoning_end", blockId: "reasoning-1", metadata: { anthropic: { redactedData: "b3BhcXVl" } } },
      { type: "text_delta", blockId: "text-2", text: "42" },
      { type: "text_end", blockId: "text-2" },
    ]);
    const answer = assistant(
      { type: "reasoning", text: "Let me think.", metadata: { anthropic: { signature: "c2lnbmVk" } } },
      { type: "reasoning", text: "", metadata: { anthropic: { redactedData: "b3BhcXVl" } } },
      { type: "tool_call", callId: "c1", toolName: "weather", args: { city: "Oslo" } },
    );
    const result: Message = {
      id: "r",
      role: "tool",
      parts: [{ type: "tool_result", callId: "c1", toolName: "weather", status: "success", text: "rain" }],
    };
    await collect(model.stream(requestOf({ turn: [input("?"), answer, result], step: 1 }), calm()));
    expect(server.requests[1]).toMatchObject({
      messages: [
        { role: "user" },
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "Let me think.", signature: "c2lnbmVk" },
            { type: "redacted_thinking", data: "b3BhcXVl" },
            { type: "tool_use", id: "c1", name: "weather", input: { city: "Oslo" } },
          ],
        },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "c1", content: "rain" }] },
      ],
    });
  });
});

describe("the provider's own tools", () => {
  const { tools } = createAnthropic({ apiKey: "test" });
  const providerTools = { web_search: tools.webSearch_20250305({ maxUses: 2 }), bash: tools.bash_20250124({}) };
  const spec = (name: string) => ({
    name,
    description: "One of ours",
    inputSchema: { type: "object", properties: {} },
  });
  const toolsSent = async (request: Partial<ModelRequest>) => {
    await using server = await startWireServer({ body: anthropic.text });
    const provider = createAnthropic({ apiKey: "test", baseURL: server.url });
    const model = createAiSdkModel(provider("claude-test"), systemClock, { providerTools });
    await collect(model.stream(requestOf(request), calm()));
    return (server.requests[0] as { tools?: readonly unknown[] }).tools;
  };
  const search = { type: "web_search_20250305", name: "web_search", max_uses: 2 };
  const bash = { type: "bash_20250124", name: "bash" };

  it("stand behind the session's tools", async () => {
    expect(await toolsSent({ tools: [spec("weather")] })).toMatchObject([{ name: "weather" }, search, bash]);
  });

  it("define a tool that the session runs when both have the name", async () => {
    expect(await toolsSent({ tools: [spec("bash"), spec("weather")] })).toMatchObject([
      bash,
      { name: "weather" },
      search,
    ]);
  });

  it("are left out like the session's when activeTools does not name them", async () => {
    expect(await toolsSent({ tools: [], options: { activeTools: ["bash"] } })).toMatchObject([bash]);
  });

  it("are not given to a completion beside the turn", async () => {
    expect(await toolsSent({ direct: { source: "titles" } })).toBeUndefined();
  });
});
