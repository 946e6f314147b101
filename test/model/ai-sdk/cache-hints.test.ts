import { createAmazonBedrock } from "@ai-sdk/amazon-bedrock";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import type { Message, ModelRequest } from "../../../src/kernel/index.js";
import { type AiSdkLanguageModel, createAiSdkModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import { cacheHintsOf } from "../../../src/model/ai-sdk/ai-sdk-cache.js";
import { calm, collectFailure, requestOf } from "./requests.js";

const said = (id: string, role: "user" | "assistant", text: string): Message => ({
  id,
  role,
  parts: [{ type: "text", text }],
});
const conversation: ModelRequest = requestOf({
  turnId: "t2",
  system: "Be brief.",
  history: [said("t1.0", "user", "Hi"), said("t1.1", "assistant", "Hello!")],
  turn: [said("t2.0", "user", "And now?"), said("t2.volatile.0", "user", "It is noon.")],
  tools: [{ name: "weather", description: "", inputSchema: { type: "object" } }],
  cache: { policy: "auto", key: "troupe-family", stable: 1 },
});

/** The body that a provider's package sends for a request. */
async function bodyOf(model: (fetch: typeof globalThis.fetch) => AiSdkLanguageModel, request = conversation) {
  const bodies: unknown[] = [];
  const fetch = async (_: unknown, init?: RequestInit) => {
    bodies.push(JSON.parse(String(init?.body)));
    return new Response("{}", { status: 400 });
  };
  // The answer is of no interest here, and the refusal is the end of the call.
  await collectFailure(createAiSdkModel(model(fetch as typeof globalThis.fetch), systemClock).stream(request, calm()));
  // biome-ignore lint/suspicious/noExplicitAny: each provider has a shape of its own, which the test spells out
  return bodies[0] as any;
}

const claude = (fetch: typeof globalThis.fetch) => createAnthropic({ apiKey: "test", fetch })("claude-test");
const bedrock = (modelId: string) => (fetch: typeof globalThis.fetch) =>
  createAmazonBedrock({ region: "us-east-1", apiKey: "test", fetch })(modelId);
const openai = (fetch: typeof globalThis.fetch) => createOpenAI({ apiKey: "test", fetch });

describe("a request with the cache policy auto", () => {
  it("is marked for Anthropic at the system text, the input before, this one, and the end", async () => {
    const body = await bodyOf(claude);
    const mark = { type: "ephemeral" };
    expect(body.system).toEqual([{ type: "text", text: "Be brief.", cache_control: mark }]);
    expect(body.messages).toEqual([
      { role: "user", content: [{ type: "text", text: "Hi", cache_control: mark }] },
      { role: "assistant", content: [{ type: "text", text: "Hello!" }] },
      {
        role: "user",
        content: [
          { type: "text", text: "And now?", cache_control: mark },
          { type: "text", text: "It is noon.", cache_control: mark },
        ],
      },
    ]);
    expect(body.tools[0].cache_control).toBeUndefined();
  });

  it("is marked for Anthropic at the tools when there is no system text, and as long as a point says", async () => {
    expect((await bodyOf(claude, { ...conversation, system: "" })).tools[0].cache_control).toEqual({
      type: "ephemeral",
    });
    const cache = { policy: [{ at: "system", ttl: "1h" } as const], key: "k", stable: 1 };
    const { system } = await bodyOf(claude, { ...conversation, cache });
    expect(system[0].cache_control).toEqual({ type: "ephemeral", ttl: "1h" });
  });

  it("has cache points for Claude and Nova on Bedrock", async () => {
    for (const modelId of ["us.anthropic.claude-sonnet-4-5-20250929-v1:0", "amazon.nova-pro-v1:0"]) {
      const body = await bodyOf(bedrock(modelId));
      const point = { cachePoint: { type: "default" } };
      expect(body.system).toEqual([{ text: "Be brief." }, point]);
      expect(body.messages[0].content).toEqual([{ text: "Hi" }, point]);
      expect(body.messages[2].content).toEqual([{ text: "And now?" }, point, { text: "It is noon." }, point]);
    }
  });

  it("has none for models on Bedrock that would refuse it", async () => {
    for (const modelId of ["meta.llama3-70b-instruct-v1:0", "anthropic.claude-3-haiku-20240307-v1:0"])
      expect(JSON.stringify(await bodyOf(bedrock(modelId)))).not.toContain("cachePoint");
  });

  it("tells OpenAI by a key which requests begin alike", async () => {
    expect(await bodyOf((fetch) => openai(fetch).chat("gpt-test"))).toMatchObject({
      prompt_cache_key: "troupe-family",
    });
    expect(await bodyOf((fetch) => openai(fetch).responses("gpt-test"))).toMatchObject({
      prompt_cache_key: "troupe-family",
    });
  });

  it("says nothing to a provider that caches by itself", async () => {
    const google = (fetch: typeof globalThis.fetch) =>
      createGoogleGenerativeAI({ apiKey: "test", fetch })("gemini-test");
    expect(await bodyOf(google)).toEqual(
      await bodyOf(google, requestOf({ ...conversation, cache: undefined } as never)),
    );
  });

  it("is what it would be without a policy, but for the hints", async () => {
    const { cache: _, ...plain } = conversation;
    expect(JSON.stringify(await bodyOf(claude, plain))).not.toContain("cache");
    expect(JSON.stringify(await bodyOf((fetch) => openai(fetch).chat("gpt-test"), plain))).not.toContain("cache");
  });
});

it("Anthropic's models are known by their providers' names: its own API, at Google, behind the gateway", () => {
  const kind = (provider: string, modelId = "claude") => cacheHintsOf({ provider, modelId })?.kind;
  expect(
    ["anthropic.messages", "vertex.anthropic.messages", "bedrock.anthropic.messages"].map((name) => kind(name)),
  ).toEqual(["marks", "marks", "marks"]);
  expect(kind("gateway", "anthropic/claude-sonnet-4.5")).toBe("marks");
  expect(kind("gateway", "openai/gpt-5")).toBeUndefined();
  expect(kind("google.generative-ai")).toBeUndefined();
  expect(kind("my-anthropic-proxy.chat")).toBeUndefined();
});
