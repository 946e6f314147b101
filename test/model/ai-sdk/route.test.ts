import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { describe, expect, it } from "vitest";
import { systemClock } from "../../../src/async/index.js";
import { aiSdkRoute, createAiSdkModel } from "../../../src/model/ai-sdk/ai-sdk.js";
import { createScriptedModel, routeOf } from "../../../src/model/index.js";

const anthropicAt = (baseURL: string) =>
  createAiSdkModel(createAnthropic({ apiKey: "test", baseURL })("claude-test"), systemClock);
const openaiAt = (baseURL: string) =>
  createAiSdkModel(createOpenAICompatible({ name: "local", baseURL })("tiny"), systemClock);

describe("the route of a model", () => {
  it("names provider, model and endpoint", () => {
    expect(routeOf(anthropicAt("https://one.test/v1"))).toBe("anthropic.messages:claude-test@https://one.test/v1");
    expect(routeOf(openaiAt("https://one.test/v1"))).toBe("local.chat:tiny@https://one.test/v1");
  });

  // turn §8.80
  it("is another for the same provider and model behind another gateway", () => {
    expect(routeOf(anthropicAt("https://one.test/v1"))).not.toBe(routeOf(anthropicAt("https://two.test/v1")));
    expect(routeOf(openaiAt("https://one.test/v1"))).not.toBe(routeOf(openaiAt("https://one.test/v2")));
    expect(routeOf(openaiAt("https://one.test/v1"))).toBe(routeOf(openaiAt("https://one.test/v1")));
  });

  it("has no secrets of the endpoint's address", () => {
    const config = { baseURL: "https://me:secret@one.test/v1?key=secret#here" };
    const model = { provider: "acme", modelId: "large", config };
    expect(aiSdkRoute(model)).toBe("acme:large@https://one.test/v1");
  });

  it.each([
    ["keeps it as a function", { baseUrl: () => "https://one.test/v1" }, "acme:large@https://one.test/v1"],
    ["keeps it nowhere", undefined, "acme:large"],
    ["keeps something else there", { url: 42 }, "acme:large"],
    [
      "cannot say it",
      {
        url() {
          throw new Error("not yet");
        },
      },
      "acme:large",
    ],
  ])("is found by shape, for a provider that %s", (_, config, route) => {
    expect(aiSdkRoute({ provider: "acme", modelId: "large", ...(config && { config }) })).toBe(route);
  });

  it("is the id of a model that names none", () => {
    expect(routeOf(createScriptedModel({ turns: [[]] }, systemClock))).toBe("scripted");
  });
});
