import { ReadableStream, type ReadableStreamDefaultController } from "node:stream/web";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { Message, ReplayDrop } from "../../../src/kernel/index.js";
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
    expect(events).toEqual([{ type: "tool_call", callId: "c1", toolName: "weather", argsText: '{"city":"Oslo"}' }]);
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

  it("that the provider runs itself are not ours to run", async () => {
    const events = await toolCalls(
      { type: "tool-input-start", id: "s1", toolName: "web_search", providerExecuted: true },
      { type: "tool-call", toolCallId: "s2", toolName: "web_search", input: "{}", providerExecuted: true },
      { type: "tool-result", toolCallId: "s2", toolName: "web_search", result: "found" },
    );
    expect(events).toEqual([]);
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
        { route: "other:two", messages: 2, parts: 4 },
        { route: "third:x", messages: 1, parts: 2 },
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
        ],
      },
    ]);
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
