import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { jsonSchema, type LanguageModel, Output, streamText } from "ai";
import { describe, expect, it } from "vitest";
import { ignore, systemClock } from "../../../src/async/index.js";
import type { JsonObject, ModelRequest, ToolSpec } from "../../../src/kernel/index.js";
import { type AiSdkLanguageModel, type AiSdkModelOptions, createAiSdkModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import { streamInForm } from "../../../src/model/calling/output-tool.js";
import { calm, collect, input, requestOf } from "./requests.js";
import { openai, startWireServer } from "./wire-server.js";

const SCHEMA: JsonObject = {
  type: "object",
  properties: { city: { type: "string" }, celsius: { type: "number" } },
  required: ["city", "celsius"],
  additionalProperties: false,
};
const LOOK: ToolSpec = { name: "look", description: "Looks.", inputSchema: { type: "object", properties: {} } };

type At = (url: string) => unknown;
const compatible =
  (supportsStructuredOutputs?: boolean): At =>
  (baseURL) =>
    createOpenAICompatible({
      name: "local",
      baseURL,
      ...(supportsStructuredOutputs !== undefined && { supportsStructuredOutputs }),
    })("tiny");
const gemini: At = (baseURL) => createGoogleGenerativeAI({ apiKey: "test", baseURL })("gemini-2.5-flash");

/** What a provider is told of the form of the answer, wherever its wire has it. */
function formIn(request: unknown): object {
  const { response_format, text, output_config, output_format, tools, tool_choice, generationConfig } =
    request as Record<string, unknown>;
  return { response_format, text, output_config, output_format, tools, tool_choice, generationConfig };
}

/** The request, whatever becomes of the answer: the server answers every wire in the words of one. */
async function sentBy(at: At, ask: (model: never) => Promise<unknown>): Promise<unknown> {
  await using server = await startWireServer({ body: openai.text });
  await ask(at(server.url) as never).catch(ignore);
  return server.requests[0];
}

function byTroupe(at: At, asked: Partial<ModelRequest> = {}, options: AiSdkModelOptions = {}): Promise<unknown> {
  return sentBy(at, async (model: AiSdkLanguageModel) => {
    const request = requestOf({ turn: [input("How warm is it?")], output: { schema: SCHEMA }, ...asked });
    await collect(streamInForm(createAiSdkModel(model, systemClock, options), request, calm()));
  });
}

function byAi(at: At): Promise<unknown> {
  return sentBy(at, async (model: LanguageModel) => {
    const output = Output.object({ schema: jsonSchema(SCHEMA as never) });
    await streamText({ model, prompt: "How warm is it?", output, maxRetries: 0, onError: ignore }).consumeStream();
  });
}

describe("an answer in a form is asked for as ai asks for it with Output.object", () => {
  it.each<readonly [string, At]>([
    ["OpenAI's chat API", (baseURL) => createOpenAI({ apiKey: "test", baseURL }).chat("gpt-5")],
    ["OpenAI's Responses API", (baseURL) => createOpenAI({ apiKey: "test", baseURL }).responses("gpt-5")],
    [
      "Anthropic, by its own output format",
      (baseURL) => createAnthropic({ apiKey: "test", baseURL })("claude-sonnet-4-5"),
    ],
    [
      "Anthropic, by the package's tool",
      (baseURL) => createAnthropic({ apiKey: "test", baseURL })("claude-3-haiku-20240307"),
    ],
    ["Gemini", gemini],
    ["an OpenAI-compatible server that takes schemas", compatible(true)],
  ])("over %s", async (_, at) => {
    const own = formIn(await byTroupe(at));
    expect(JSON.stringify(own)).toContain("celsius");
    expect(own).toEqual(formIn(await byAi(at)));
  });
});

describe("an answer in a form is asked for by a tool", () => {
  const toolsOf = (request: unknown) => JSON.stringify(formIn(request));

  it.each<readonly [string, At, Partial<ModelRequest>, AiSdkModelOptions]>([
    ["of an OpenAI-compatible server that does not say that it takes schemas", compatible(), {}, {}],
    ["of Gemini, which takes no schema beside tools", gemini, { tools: [LOOK] }, {}],
    ["of a model whose module says so", compatible(true), {}, { structuredOutput: "tool" }],
  ])("%s", async (_, at, asked, options) => {
    const form = toolsOf(await byTroupe(at, asked, options));
    expect(form).toContain("final_answer");
    expect(form).not.toMatch(/json_schema|responseSchema|responseJsonSchema/);
  });

  it("and by the mode of a model whose module says that it has one", async () => {
    const form = toolsOf(await byTroupe(compatible(true), { tools: [LOOK] }, { structuredOutput: "native" }));
    expect(form).toContain("json_schema");
    expect(form).not.toContain("final_answer");
  });

  it("anything else that a module says of it is refused", () => {
    const model = compatible()("http://localhost") as AiSdkLanguageModel;
    expect(() => createAiSdkModel(model, systemClock, { structuredOutput: "maybe" as never })).toThrow(
      'structuredOutput is "native" or "tool"',
    );
  });
});
