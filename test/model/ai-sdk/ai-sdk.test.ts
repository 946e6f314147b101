import { ReadableStream, type ReadableStreamDefaultController } from "node:stream/web";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { Message, Part, ReplayDrop } from "../../../src/kernel/index.js";
import { type AiSdkLanguageModel, createAiSdkModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import type { ReportReplayDrops } from "../../../src/model/boundary/model.js";
import { calm, collect, collectFailure, requestOf } from "./requests.js";

const usage = { inputTokens: { total: 5 }, outputTokens: { total: 2 } };
const stop = { type: "finish", finishReason: { unified: "stop", raw: "end_turn" }, usage };

/** A model whose stream holds these parts, of whatever version they are. */
function modelOf(parts: readonly unknown[], specificationVersion = "v3") {
  const model: AiSdkLanguageModel = {
    specificationVersion,
    provider: "test",
    modelId: "parts",
    doStream: async () => ({ stream: ReadableStream.from(parts) }),
  };
  return createAiSdkModel(model, systemClock);
}

describe("versions of the AI SDK's language model", () => {
  it("2 has flat usage and a finish reason in one word", async () => {
    const flat = { inputTokens: 11, outputTokens: 5, totalTokens: 16, cachedInputTokens: 4, reasoningTokens: 2 };
    const events = await collect(
      modelOf([{ type: "finish", finishReason: "tool-calls", usage: flat }], "v2").stream(requestOf(), calm()),
    );
    expect(events).toEqual([
      {
        type: "finish",
        reason: "tool_calls",
        usage: { inputTokens: 11, outputTokens: 5, cacheReadTokens: 4, cacheWriteTokens: 0, reasoningTokens: 2 },
      },
    ]);
  });

  it.each(["v3", "v4"])("%s has nested usage and a finish reason in two words", async (version) => {
    const nested = {
      inputTokens: { total: 11, noCache: 1, cacheRead: 4, cacheWrite: 6 },
      outputTokens: { total: 5, text: 3, reasoning: 2 },
    };
    const finish = { type: "finish", finishReason: { unified: "content-filter", raw: "refusal" }, usage: nested };
    expect(await collect(modelOf([finish], version).stream(requestOf(), calm()))).toEqual([
      {
        type: "finish",
        reason: "content_filter",
        usage: { inputTokens: 11, outputTokens: 5, cacheReadTokens: 4, cacheWriteTokens: 6, reasoningTokens: 2 },
        evidence: { finishReason: "refusal" },
      },
    ]);
  });

  it("may leave usage and reason unknown", async () => {
    const finish = {
      type: "finish",
      finishReason: { unified: "other" },
      usage: { inputTokens: { total: Number.NaN } },
    };
    expect(await collect(modelOf([finish]).stream(requestOf(), calm()))).toEqual([
      {
        type: "finish",
        reason: "unknown",
        usage: { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0, cacheWriteTokens: 0, reasoningTokens: 0 },
        unsaid: ["inputTokens", "outputTokens"],
      },
    ]);
  });
});

describe("tool calls in an AI SDK stream", () => {
  const toolCalls = async (...parts: unknown[]) =>
    (await collect(modelOf([...parts, stop]).stream(requestOf(), calm()))).slice(0, -1);

  it("are complete even when only the pieces of their input arrive", async () => {
    const events = await toolCalls(
      { type: "tool-input-start", id: "c1", toolName: "weather" },
      { type: "tool-input-delta", id: "c1", delta: '{"city":' },
      { type: "tool-input-delta", id: "c1", delta: '"Oslo"}' },
      { type: "tool-input-end", id: "c1" },
    );
    const call = { callId: "c1", toolName: "weather" };
    expect(events).toEqual([
      { type: "tool_input_delta", ...call, text: '{"city":' },
      { type: "tool_input_delta", ...call, text: '"Oslo"}' },
      { type: "tool_call", ...call, argsText: '{"city":"Oslo"}' },
    ]);
  });

  it("come once when pieces and the whole arrive, with the metadata of the whole", async () => {
    const providerMetadata = { google: { thoughtSignature: "abc" } };
    const whole = { type: "tool-call", toolCallId: "c1", toolName: "weather", input: "{}", providerMetadata };
    const events = await toolCalls(
      { type: "tool-input-start", id: "c1", toolName: "weather" },
      { type: "tool-input-delta", id: "c1", delta: "{}" },
      whole,
      whole,
    );
    expect(events).toEqual([
      { type: "tool_input_delta", callId: "c1", toolName: "weather", text: "{}" },
      { type: "tool_call", callId: "c1", toolName: "weather", argsText: "{}", metadata: providerMetadata },
    ]);
  });

  it("keep arguments that are not JSON, and read missing ones as an empty object", async () => {
    const events = await toolCalls(
      { type: "tool-call", toolCallId: "c1", toolName: "a", input: "{oops" },
      { type: "tool-call", toolCallId: "c2", toolName: "b", input: "" },
    );
    expect(events).toMatchObject([{ argsText: "{oops" }, { argsText: "{}" }]);
  });

  it("that the provider runs itself are parts of the answer, with their results, and no calls of ours", async () => {
    const events = await toolCalls(
      { type: "tool-input-start", id: "s1", toolName: "web_search", providerExecuted: true },
      { type: "tool-call", toolCallId: "s2", toolName: "web_search", input: "{}", providerExecuted: true },
      { type: "tool-result", toolCallId: "s2", toolName: "web_search", result: "found" },
    );
    expect(events).toEqual([
      { type: "part", part: { type: "provider_tool_call", callId: "s2", toolName: "web_search", args: {} } },
      { type: "part", part: { type: "provider_tool_result", callId: "s2", toolName: "web_search", value: "found" } },
      { type: "part", part: { type: "provider_tool_call", callId: "s1", toolName: "web_search", args: {} } },
    ]);
  });
});

describe("what else an AI SDK stream has", () => {
  const metadata = { acme: { n: 1 } };
  const said = async (version: string, ...parts: unknown[]) =>
    (await collect(modelOf([...parts, stop], version).stream(requestOf(), calm()))).slice(0, -1);

  it("are sources, each a part with its metadata", async () => {
    const url = { type: "source", sourceType: "url", id: "1", url: "https://a.example", title: "A" };
    const document = { type: "source", sourceType: "document", id: "2", mediaType: "text/plain", title: "B" };
    expect(await said("v3", { ...url, providerMetadata: metadata }, { ...document, filename: "b.txt" })).toEqual([
      {
        type: "part",
        part: { type: "source", id: "1", source: { kind: "url", url: "https://a.example", title: "A" }, metadata },
      },
      {
        type: "part",
        part: {
          type: "source",
          id: "2",
          source: { kind: "document", mediaType: "text/plain", title: "B", name: "b.txt" },
        },
      },
    ]);
  });

  it("are files, as bytes, base64, or as version 4 says them", async () => {
    const data = new Uint8Array([1, 2, 3]);
    const file = { type: "file", mediaType: "image/png" };
    expect(await said("v3", { ...file, data }, { ...file, data: "AQID", providerMetadata: metadata })).toEqual([
      { ...file, data },
      { ...file, data, metadata },
    ]);
    const url = new URL("https://a.example/b.png");
    expect(
      await said("v4", { ...file, data: { type: "data", data: "AQID" } }, { ...file, data: { type: "url", url } }),
    ).toEqual([
      { ...file, data },
      { ...file, data: url },
    ]);
  });

  it("are results of the provider's tools: those that failed say so, those that are not over are not told", async () => {
    const result = { type: "tool-result", toolCallId: "p", toolName: "run" };
    expect(
      await said(
        "v3",
        { ...result, result: { step: 1 }, preliminary: true },
        { ...result, result: { code: "no" }, isError: true, providerMetadata: metadata },
      ),
    ).toEqual([
      {
        type: "part",
        part: {
          type: "provider_tool_result",
          callId: "p",
          toolName: "run",
          value: { code: "no" },
          isError: true,
          metadata,
        },
      },
    ]);
  });

  it("are parts nobody knows here, kept as they came; what is no content is not kept", async () => {
    const custom = { type: "custom", kind: "acme.thing", providerMetadata: metadata };
    const bytes = { type: "reasoning-file", data: { type: "data", data: new Uint8Array([1, 2, 3]) } };
    expect(
      await said("v4", { type: "stream-start", warnings: [] }, custom, { type: "ping" }, { type: "raw" }, bytes),
    ).toEqual([
      { type: "part", part: { type: "provider", data: custom } },
      {
        type: "part",
        part: { type: "provider", data: { type: "reasoning-file", data: { type: "data", data: "AQID" } } },
      },
    ]);
  });

  it("keep their place behind the calls before them", async () => {
    const events = await said(
      "v3",
      { type: "tool-call", toolCallId: "c", toolName: "t", input: "{}" },
      { type: "source", sourceType: "url", id: "1", url: "https://a.example" },
    );
    expect(events.map(({ type }) => type)).toEqual(["tool_call", "part"]);
  });
});

describe("reasoning in an AI SDK stream", () => {
  it("ends with the metadata of all its parts", async () => {
    const parts = [
      { type: "reasoning-start", id: "r", providerMetadata: { openai: { itemId: "rs_1" } } },
      { type: "reasoning-delta", id: "r", delta: "hmm" },
      { type: "reasoning-end", id: "r", providerMetadata: { openai: { encrypted: "xyz" } } },
      stop,
    ];
    expect((await collect(modelOf(parts).stream(requestOf(), calm()))).slice(0, -1)).toEqual([
      { type: "reasoning_delta", blockId: "reasoning-r", text: "hmm" },
      { type: "reasoning_end", blockId: "reasoning-r", metadata: { openai: { itemId: "rs_1", encrypted: "xyz" } } },
    ]);
  });
});

describe("text in an AI SDK stream", () => {
  const said = async (...parts: unknown[]) =>
    (await collect(modelOf([...parts, stop]).stream(requestOf(), calm()))).slice(0, -1);

  it("ends with the metadata of all its parts, each block with its own", async () => {
    expect(
      await said(
        { type: "text-start", id: "m1", providerMetadata: { openai: { itemId: "msg_1" } } },
        { type: "text-delta", id: "m1", delta: "one" },
        { type: "text-end", id: "m1", providerMetadata: { openai: { phase: "final" } } },
        { type: "text-start", id: "m2" },
        { type: "text-delta", id: "m2", delta: "two" },
        { type: "text-end", id: "m2" },
        { type: "text-start", id: "m3" },
        { type: "text-delta", id: "m3", delta: "three" },
        // Gemini signs a text with an empty piece of it.
        { type: "text-delta", id: "m3", delta: "", providerMetadata: { google: { thoughtSignature: "s" } } },
        { type: "text-end", id: "m3" },
      ),
    ).toEqual([
      { type: "text_delta", blockId: "text-m1", text: "one" },
      { type: "text_end", blockId: "text-m1", metadata: { openai: { itemId: "msg_1", phase: "final" } } },
      { type: "text_delta", blockId: "text-m2", text: "two" },
      { type: "text_end", blockId: "text-m2" },
      { type: "text_delta", blockId: "text-m3", text: "three" },
      { type: "text_end", blockId: "text-m3", metadata: { google: { thoughtSignature: "s" } } },
    ]);
  });

  it("keeps its metadata when the provider does not say that it ends", async () => {
    expect(
      await said(
        { type: "text-start", id: "m1", providerMetadata: { openai: { itemId: "msg_1" } } },
        { type: "text-delta", id: "m1", delta: "one" },
      ),
    ).toEqual([
      { type: "text_delta", blockId: "text-m1", text: "one" },
      { type: "text_end", blockId: "text-m1", metadata: { openai: { itemId: "msg_1" } } },
    ]);
  });

  it("says nothing of a block that stayed empty, so that its attempt may be repeated", async () => {
    expect(
      await said(
        { type: "text-start", id: "m1", providerMetadata: { openai: { itemId: "msg_1" } } },
        { type: "text-end", id: "m1", providerMetadata: { openai: { itemId: "msg_1" } } },
      ),
    ).toEqual([]);
  });
});

describe("failures of an AI SDK model", () => {
  const failing = (thrown: unknown): AiSdkLanguageModel => ({
    specificationVersion: "v3",
    provider: "test",
    modelId: "failing",
    doStream: () => Promise.reject(thrown),
  });
  const failure = async (thrown: unknown) =>
    (await collectFailure(createAiSdkModel(failing(thrown), systemClock).stream(requestOf(), calm()))).error;

  it("keep whatever was thrown as the cause", async () => {
    const bug = new RangeError("boom");
    expect(await failure(bug)).toMatchObject({
      code: "model_failed",
      cause: bug,
      message: "The model call failed: boom",
    });
    expect(await failure(undefined)).toMatchObject({ code: "model_failed" });
  });

  it("of a missing API key are model_auth_failed", async () => {
    const missing = Object.assign(new Error("Set TEST_API_KEY"), { name: "AI_LoadAPIKeyError" });
    expect(await failure(missing)).toMatchObject({ code: "model_auth_failed", retryable: false });
  });

  it("by the model's own timeout are model_unreachable, not our abort", async () => {
    expect(await failure(new DOMException("slow", "TimeoutError"))).toMatchObject({ code: "model_unreachable" });
  });

  it("of an error part in words only are model_failed", async () => {
    const { error } = await collectFailure(modelOf([{ type: "error", error: "nope" }]).stream(requestOf(), calm()));
    expect(error).toMatchObject({ code: "model_failed", cause: "nope" });
  });

  it("of a part that is no part are model_stream_malformed", async () => {
    const { error } = await collectFailure(modelOf(["text"]).stream(requestOf(), calm()));
    expect(error).toMatchObject({ code: "model_stream_malformed" });
  });
});

describe("aborting an AI SDK model that ignores its signal", () => {
  const never = new Promise<never>(() => undefined);

  it("ends the wait for its first part and cancels the stream", async () => {
    const cancelled = vi.fn();
    const stream = new ReadableStream({ pull: () => never, cancel: cancelled });
    const model = createAiSdkModel(
      {
        specificationVersion: "v3",
        provider: "test",
        modelId: "deaf",
        doStream: async () => ({ stream }),
      },
      systemClock,
    );
    const controller = new AbortController();
    const failing = collectFailure(model.stream(requestOf(), controller.signal));
    setImmediate(() => controller.abort());
    expect((await failing).error).toMatchObject({ code: "aborted" });
    expect(cancelled).toHaveBeenCalledOnce();
  });

  it("ends the wait for its stream and cancels the one that comes too late", async () => {
    let open: (result: { stream: ReadableStream<unknown> }) => void = () => undefined;
    const model = createAiSdkModel(
      {
        specificationVersion: "v3",
        provider: "test",
        modelId: "deaf",
        doStream: () => new Promise<{ stream: ReadableStream<unknown> }>((resolve) => (open = resolve)),
      },
      systemClock,
    );
    const controller = new AbortController();
    const failing = collectFailure(model.stream(requestOf(), controller.signal));
    controller.abort();
    expect((await failing).error).toMatchObject({ code: "aborted" });
    const cancelled = new Promise<void>((resolve) => open({ stream: new ReadableStream({ cancel: () => resolve() }) }));
    await cancelled;
  });
});

describe("a response that has finished", () => {
  /** Finishes at once; says how its rest was treated. */
  function finishing(rest: (controller: ReadableStreamDefaultController<unknown>) => void) {
    let say: (fate: "read to its end" | "dropped") => void = () => undefined;
    const fate = new Promise<"read to its end" | "dropped">((resolve) => {
      say = resolve;
    });
    let parts = 0;
    const stream = new ReadableStream<unknown>(
      {
        pull(controller) {
          parts++;
          if (parts === 1) return controller.enqueue(stop);
          if (parts === 2) return rest(controller);
          controller.close();
          say("read to its end");
        },
        cancel: () => say("dropped"),
      },
      { highWaterMark: 0 },
    );
    const doStream = async () => ({ stream });
    return {
      fate,
      model: createAiSdkModel({ specificationVersion: "v3", provider: "test", modelId: "m", doStream }, systemClock),
    };
  }

  it("is read to its end, so that its connection can be used again", async () => {
    const { model, fate } = finishing((controller) => controller.enqueue({ type: "raw" }));
    await collect(model.stream(requestOf(), calm()));
    expect(await fate).toBe("read to its end");
  });

  it("is dropped when it stays open for a second", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    onTestFinished(() => void vi.useRealTimers());
    const { model, fate } = finishing(() => undefined);
    await collect(model.stream(requestOf(), calm()));
    vi.advanceTimersByTime(1000);
    expect(await fate).toBe("dropped");
  });
});

describe("what is sent", () => {
  /** The prompt a model of this name is given for these messages. */
  async function promptFor(
    messages: readonly Message[],
    attachments?: ReadonlyMap<string, Uint8Array>,
    onReplayDropped?: ReportReplayDrops,
  ) {
    let prompt: unknown;
    const model: AiSdkLanguageModel = {
      specificationVersion: "v3",
      provider: "acme",
      modelId: "one",
      doStream: async (options: { prompt: unknown }) => {
        prompt = options.prompt;
        return { stream: ReadableStream.from([stop]) };
      },
    };
    const request = requestOf({ turn: messages, ...(attachments && { attachments }) });
    await collect(createAiSdkModel(model, systemClock).stream(request, calm(), onReplayDropped));
    return prompt;
  }
  const metadata = { acme: { signature: "s" } };
  const answer = (route?: string): Message => ({
    id: "a",
    role: "assistant",
    ...(route !== undefined && { route }),
    parts: [
      { type: "reasoning", text: "hm", metadata },
      { type: "tool_call", callId: "c", toolName: "t", args: {}, metadata },
      { type: "text", text: "yes" },
      { type: "text", text: "sir", metadata },
    ],
  });

  // turn §8.80
  it("of reasoning and metadata goes back to the model that minted it", async () => {
    expect(await promptFor([answer("acme:one")])).toEqual([
      {
        role: "assistant",
        content: [
          { type: "reasoning", text: "hm", providerOptions: metadata },
          { type: "tool-call", toolCallId: "c", toolName: "t", input: {}, providerOptions: metadata },
          { type: "text", text: "yes" },
          { type: "text", text: "sir", providerOptions: metadata },
        ],
      },
    ]);
  });

  // turn §8.80
  it("of reasoning and metadata goes to no other model, and what is left out is told by who had minted it", async () => {
    const dropped: (readonly ReplayDrop[])[] = [];
    const plain: Message = { id: "p", role: "assistant", route: "other:two", parts: [{ type: "text", text: "hi" }] };
    const answers = [answer("other:two"), answer(), answer("acme:one"), answer("other:two"), answer("third:x"), plain];
    await promptFor(answers, undefined, (drops) => dropped.push(drops));
    expect(dropped).toEqual([
      [
        { route: "other:two", messages: 2, parts: 6 },
        { route: "third:x", messages: 1, parts: 3 },
      ],
    ]);
    await promptFor([answer("acme:one"), plain], undefined, (drops) => dropped.push(drops));
    expect(dropped).toHaveLength(1);
    expect(await promptFor([answer("other:two")])).toEqual([
      {
        role: "assistant",
        content: [
          { type: "tool-call", toolCallId: "c", toolName: "t", input: {} },
          { type: "text", text: "yes" },
          { type: "text", text: "sir" },
        ],
      },
    ]);
  });

  const OWN: readonly Part[] = [
    { type: "provider_tool_call", callId: "p", toolName: "web_search", args: { query: "x" }, metadata },
    { type: "provider_tool_result", callId: "p", toolName: "web_search", value: [{ url: "u" }], metadata },
    { type: "provider_tool_result", callId: "q", toolName: "run", value: { code: "no" }, isError: true },
    { type: "provider", data: { type: "custom", kind: "acme.thing", providerMetadata: metadata } },
    { type: "source", id: "1", source: { kind: "url", url: "https://a.example" }, metadata },
    { type: "attachment", mediaType: "image/png", source: { kind: "stored", hash: "h", bytes: 3 }, metadata },
  ];

  it("of what the provider did itself, of files and of what nobody knows goes back to it in its place", async () => {
    const bytes = new Uint8Array([1, 2, 3]);
    const message: Message = { id: "a", role: "assistant", route: "acme:one", parts: OWN };
    const providerOptions = metadata;
    expect(await promptFor([message], new Map([["h", bytes]]))).toEqual([
      {
        role: "assistant",
        content: [
          {
            type: "tool-call",
            toolCallId: "p",
            toolName: "web_search",
            input: { query: "x" },
            providerExecuted: true,
            providerOptions,
          },
          {
            type: "tool-result",
            toolCallId: "p",
            toolName: "web_search",
            output: { type: "json", value: [{ url: "u" }] },
            providerOptions,
          },
          {
            type: "tool-result",
            toolCallId: "q",
            toolName: "run",
            output: { type: "error-json", value: { code: "no" } },
          },
          { type: "custom", kind: "acme.thing", providerOptions },
          { type: "file", mediaType: "image/png", data: bytes, providerOptions },
        ],
      },
    ]);
  });

  it("of what a provider did itself goes to no other, which is given the files alone", async () => {
    const dropped: ReplayDrop[] = [];
    const bytes = new Uint8Array([1, 2, 3]);
    const message: Message = { id: "a", role: "assistant", route: "other:two", parts: OWN };
    const attachments = new Map([["h", bytes]]);
    expect(await promptFor([message], attachments, (drops) => dropped.push(...drops))).toEqual([
      { role: "assistant", content: [{ type: "file", mediaType: "image/png", data: bytes }] },
    ]);
    expect(dropped).toEqual([{ route: "other:two", messages: 1, parts: 5 }]);
  });

  it("of attachments are the stored bytes, or the address", async () => {
    const bytes = new Uint8Array([1, 2, 3]);
    const message: Message = {
      id: "u",
      role: "user",
      parts: [
        { type: "text", text: "Look:" },
        { type: "attachment", mediaType: "image/png", name: "a.png", source: { kind: "stored", hash: "h", bytes: 3 } },
        { type: "attachment", mediaType: "image/png", source: { kind: "url", url: "https://example.com/b.png" } },
      ],
    };
    expect(await promptFor([message], new Map([["h", bytes]]))).toEqual([
      {
        role: "user",
        content: [
          { type: "text", text: "Look:" },
          { type: "file", mediaType: "image/png", data: bytes, filename: "a.png" },
          { type: "file", mediaType: "image/png", data: new URL("https://example.com/b.png") },
        ],
      },
    ]);
    await expect(promptFor([message])).rejects.toMatchObject({ code: "attachment_missing" });
  });
});
