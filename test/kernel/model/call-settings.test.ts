import { describe, expect, it } from "vitest";
import {
  callSettings,
  callSettingsProblem,
  modelOptionsProblem,
  NO_CALL_SETTINGS,
  retryPolicyOf,
} from "../../../src/kernel/model/call-settings.js";
import { DEFAULT_RETRY, retryProblem } from "../../../src/kernel/model/retry-policy.js";

describe("how models are called", () => {
  it("is the same constant when nobody says anything", () => {
    expect(callSettings({})).toBe(NO_CALL_SETTINGS);
    expect(callSettings({ runtime: NO_CALL_SETTINGS })).toBe(NO_CALL_SETTINGS);
    expect(retryPolicyOf({})).toBe(DEFAULT_RETRY);
  });

  it("is what the turn says over the session, the agent and the runtime, field by field", () => {
    const layer = (temperature: number, seed?: number) => ({
      modelOptions: { temperature, ...(seed !== undefined && { seed }) },
    });
    const layers = { runtime: layer(1, 1), agent: layer(2, 2), session: layer(3), turn: layer(4) };
    expect(callSettings(layers)).toEqual({ modelOptions: { temperature: 4, seed: 2 } });
    expect(callSettings({ ...layers, turn: undefined })).toEqual({ modelOptions: { temperature: 3, seed: 2 } });
    expect(callSettings({ runtime: layers.runtime, agent: layers.agent })).toEqual({
      modelOptions: { temperature: 2, seed: 2 },
    });
  });

  it("has the headers and provider options of every layer, the stronger one's where both have a key", () => {
    const runtime = { modelOptions: { headers: { a: "1", b: "1" }, providerOptions: { openai: { x: 1, y: 1 } } } };
    const turn = { modelOptions: { headers: { b: "2" }, providerOptions: { openai: { y: 2 }, google: { z: 3 } } } };
    expect(callSettings({ runtime, turn })).toEqual({
      modelOptions: {
        headers: { a: "1", b: "2" },
        providerOptions: { openai: { x: 1, y: 2 }, google: { z: 3 } },
      },
    });
  });

  it("has the strongest list of fallback models as a whole, also when it is empty", () => {
    const runtime = { fallbackModels: ["a", "b"] };
    expect(callSettings({ runtime }).fallbackModels).toEqual(["a", "b"]);
    expect(callSettings({ runtime, agent: { fallbackModels: ["c"] } }).fallbackModels).toEqual(["c"]);
    expect(callSettings({ runtime, turn: { fallbackModels: [] } }).fallbackModels).toEqual([]);
  });

  it("has the retries of the model over those of runtime and agent, and under those of the turn", () => {
    const layers = {
      runtime: { modelRetry: { maxAttempts: 2, baseDelayMs: 1 } },
      agent: { modelRetry: { maxAttempts: 3, totalMs: 9 } },
    };
    const model = { maxAttempts: 5, on: [503] };
    expect(retryPolicyOf(layers, model)).toEqual({
      ...DEFAULT_RETRY,
      maxAttempts: 5,
      baseDelayMs: 1,
      totalMs: 9,
      on: [503],
    });
    expect(retryPolicyOf({ ...layers, turn: { modelRetry: { maxAttempts: 1 } } }, model).maxAttempts).toBe(1);
  });
});

describe("model options from outside", () => {
  it("are whatever a model can be told", () => {
    expect(
      modelOptionsProblem({
        temperature: 0,
        maxOutputTokens: 100,
        stopSequences: ["\n"],
        seed: -1,
        topP: 0.9,
        topK: 40,
        presencePenalty: 0,
        frequencyPenalty: 0,
        headers: { "x-team": "blue" },
        providerOptions: { openai: { reasoningEffort: "low", list: [1, null, { deep: true }] } },
        toolChoice: { tool: "search" },
        parallelToolCalls: false,
        activeTools: [],
      }),
    ).toBeUndefined();
  });

  it.each([
    ["a text where a number belongs", { temperature: "hot" }, "modelOptions.temperature is a number"],
    ["no number", { topP: Number.NaN }, "modelOptions.topP is a number"],
    [
      "an option nobody knows",
      { temprature: 1 },
      'modelOptions has no option "temprature". Did you mean "temperature"?',
    ],
    ["headers of two lines", { headers: { a: "x\r\nb: y" } }, "modelOptions.headers"],
    ["headers without a name", { headers: { "": "x" } }, "modelOptions.headers"],
    ["provider options that are no JSON", { providerOptions: { openai: { at: new Date() } } }, "providerOptions"],
    ["provider options without a provider", { providerOptions: { reasoningEffort: "low" } }, "providerOptions"],
    ["a tool choice nobody knows", { toolChoice: "always" }, '"auto", "required", "none" or { tool: name }'],
    ["a tool choice with more", { toolChoice: { tool: "x", type: "tool" } }, "modelOptions.toolChoice"],
    ["active tools that are no list", { activeTools: "search" }, "modelOptions.activeTools is a list of names"],
    ["a list", [], "modelOptions is an object"],
  ])("that are %s are refused with what is wrong", (_, options, why) => {
    expect(modelOptionsProblem(options)).toContain(why);
  });
});

describe("a retry policy from outside", () => {
  it.each([
    ["no object", 3, "modelRetry is an object"],
    ["a field nobody knows", { retries: 3 }, 'modelRetry has no option "retries"'],
    ["no attempt at all", { maxAttempts: 0 }, "modelRetry.maxAttempts"],
    ["attempts without end", { maxAttempts: Number.POSITIVE_INFINITY }, "modelRetry.maxAttempts"],
    ["a cause nobody knows", { on: ["timeout"] }, "modelRetry.on"],
    ["a status that is no failure", { on: [200] }, "modelRetry.on"],
    ["half a millisecond", { baseDelayMs: 0.5 }, "modelRetry.baseDelayMs"],
    ["a wait no timer can have", { totalMs: 2 ** 31 }, "modelRetry.totalMs"],
  ])("with %s is refused", (_, retry, why) => {
    expect(retryProblem(retry)).toContain(why);
    expect(callSettingsProblem({ modelRetry: retry as never })).toContain(why);
  });

  it("with everything in it is taken", () => {
    expect(retryProblem(DEFAULT_RETRY)).toBeUndefined();
  });
});
