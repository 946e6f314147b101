import { ReadableStream } from "node:stream/web";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { Message, Part, ResultPart } from "../../../src/kernel/index.js";
import { type AiSdkLanguageModel, type AiSdkModelOptions, createAiSdkModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import { calm, collect, requestOf } from "./requests.js";

const BYTES = new Uint8Array([1, 2, 3]);
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };

interface Asked extends AiSdkModelOptions {
  readonly provider?: string;
  readonly version?: string;
}

/** What a model of this provider and version is given for these messages. */
async function promptFor(turn: readonly Message[], asked: Asked = {}): Promise<unknown[]> {
  const { provider = "anthropic.messages", version = "v3", ...options } = asked;
  let prompt: unknown[] = [];
  const model: AiSdkLanguageModel = {
    specificationVersion: version,
    provider,
    modelId: "m",
    doStream: async (given: { readonly prompt: unknown[] }) => {
      ({ prompt } = given);
      const finish = { type: "finish", finishReason: { unified: "stop" }, usage };
      return { stream: ReadableStream.from([finish]) };
    },
  };
  const attachments = new Map([["h", BYTES]]);
  await collect(createAiSdkModel(model, systemClock, options).stream(requestOf({ turn, attachments }), calm()));
  return prompt;
}

const result = (more: object, parts: readonly Part[] = []): Message[] => {
  const part: Part = { type: "tool_result", callId: "c", toolName: "t", status: "success", text: "words", ...more };
  return [
    ...(parts.length > 0 ? [{ id: "a", role: "assistant", parts } as const] : []),
    { id: "r", role: "tool", parts: [part] },
  ];
};

/** The output of the only result. */
async function outputOf(more: object, asked?: Asked): Promise<unknown> {
  const [message] = (await promptFor(result(more), asked)) as [{ content: [{ output: unknown }] }];
  return message.content[0].output;
}

const file = (mediaType: string, more: object = {}): ResultPart => ({
  type: "attachment",
  mediaType,
  source: { kind: "stored", hash: "h", bytes: 3 },
  ...more,
});

describe("a tool's result", () => {
  it("that is a text goes as text, also when the text reads like JSON", async () => {
    expect(await outputOf({ text: '{"a":1}' })).toEqual({ type: "text", value: '{"a":1}' });
  });

  it("that is a value goes as that value, with its fields in their order", async () => {
    const output = await outputOf({ text: '{"b":[1,null],"a":"x"}', json: true });
    expect(output).toEqual({ type: "json", value: { b: [1, null], a: "x" } });
    expect(JSON.stringify(output)).toBe('{"type":"json","value":{"b":[1,null],"a":"x"}}');
  });

  it("that is a failure goes as an error in words", async () => {
    expect(await outputOf({ status: "failure", text: "no" })).toEqual({ type: "error-text", value: "no" });
    expect(await outputOf({ status: "cancelled", text: "no" })).toEqual({ type: "error-text", value: "no" });
  });

  it("goes back with what its call came with, unless another model had made the call", async () => {
    const metadata = { openai: { itemId: "fc_1" } };
    const call: Part = { type: "tool_call", callId: "c", toolName: "t", args: {}, metadata };
    const [, own] = await promptFor(result({}, [call]));
    expect(own).toMatchObject({ content: [{ type: "tool-result", providerOptions: metadata }] });
    const [answer, ...rest] = result({}, [call]);
    const foreign = await promptFor([{ ...(answer as Message), route: "other:m" }, ...rest]);
    expect(JSON.stringify(foreign)).not.toContain("fc_1");
  });
});

describe("a tool's result of parts", () => {
  const content: readonly ResultPart[] = [
    { type: "text", text: "See:" },
    { type: "json", value: { n: 1 } },
    file("image/png"),
    file("application/pdf", { name: "a.pdf" }),
  ];

  it("goes to version 3 as text, image and file data", async () => {
    expect(await outputOf({ content })).toEqual({
      type: "content",
      value: [
        { type: "text", text: "See:" },
        { type: "text", text: '{"n":1}' },
        { type: "image-data", mediaType: "image/png", data: "AQID" },
        { type: "file-data", mediaType: "application/pdf", data: "AQID", filename: "a.pdf" },
      ],
    });
  });

  it("goes to version 2 as media", async () => {
    expect(await outputOf({ content: content.slice(2) }, { version: "v2" })).toEqual({
      type: "content",
      value: [
        { type: "media", mediaType: "image/png", data: "AQID" },
        { type: "media", mediaType: "application/pdf", data: "AQID" },
      ],
    });
  });

  it("goes to version 4 as files whose data say what they are", async () => {
    const url = file("image/png", { source: { kind: "url", url: "https://example.com/a.png" } });
    expect(await outputOf({ content: [...content.slice(3), url] }, { version: "v4" })).toEqual({
      type: "content",
      value: [
        { type: "file", mediaType: "application/pdf", data: { type: "data", data: BYTES }, filename: "a.pdf" },
        { type: "file", mediaType: "image/png", data: { type: "url", url: new URL("https://example.com/a.png") } },
      ],
    });
  });

  it("has addresses as addresses in version 3, and in words in version 2, which has none", async () => {
    const source = { kind: "url", url: "https://example.com/a" };
    const urls = { content: [file("image/png", { source }), file("application/pdf", { source })] };
    expect(await outputOf(urls)).toEqual({
      type: "content",
      value: [
        { type: "image-url", url: "https://example.com/a" },
        { type: "file-url", url: "https://example.com/a", mediaType: "application/pdf" },
      ],
    });
    expect(await outputOf(urls, { version: "v2" })).toMatchObject({
      value: [{ type: "text", text: expect.stringContaining("https://example.com/a") }, { type: "text" }],
    });
  });

  it("says in words which file its provider does not take from a tool", async () => {
    expect(await outputOf({ content: [file("audio/mpeg", { name: "a.mp3" }), file("image/png")] })).toEqual({
      type: "content",
      value: [
        { type: "text", text: "[audio/mpeg a.mp3, 3 bytes] This model takes no such file from a tool." },
        { type: "image-data", mediaType: "image/png", data: "AQID" },
      ],
    });
  });

  it.each(["openai.chat", "mistral.chat", "somebody.else"])(
    "goes to %s, which takes no files from a tool, as one text that says all of it",
    async (provider) => {
      expect(await outputOf({ content }, { provider })).toEqual({ type: "text", value: "words" });
    },
  );

  it.each(["openai.responses", "azure.responses", "google.generative-ai", "google.vertex.chat", "amazon-bedrock"])(
    "goes to %s with its images",
    async (provider) => {
      expect(await outputOf({ content: [file("image/png")] }, { provider })).toEqual({
        type: "content",
        value: [{ type: "image-data", mediaType: "image/png", data: "AQID" }],
      });
    },
  );

  it("goes to a model whose module says that it takes them", async () => {
    const asked = { provider: "somebody.else", toolMedia: ["image/*"] };
    expect(await outputOf({ content: content.slice(2) }, asked)).toMatchObject({
      value: [{ type: "image-data" }, { type: "text", text: expect.stringContaining("a.pdf") }],
    });
  });
});

it("a user's file goes to version 4 with data that say what they are", async () => {
  const message: Message = {
    id: "u",
    role: "user",
    parts: [{ type: "attachment", mediaType: "image/png", source: { kind: "stored", hash: "h", bytes: 3 } }],
  };
  expect(await promptFor([message], { version: "v4" })).toEqual([
    { role: "user", content: [{ type: "file", mediaType: "image/png", data: { type: "data", data: BYTES } }] },
  ]);
});
