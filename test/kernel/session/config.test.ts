import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  changeConfig,
  checkConfig,
  DEFAULT_CONFIG,
  type SessionConfig,
  sameConfig,
} from "../../../src/kernel/index.js";

const CONFIG: SessionConfig = { ...DEFAULT_CONFIG, instructions: "Be kind." };
const refusal = (why: string) =>
  expect.objectContaining({
    code: "invalid_config",
    message: `The session's configuration cannot be changed: ${why}${why.endsWith("?") ? "" : "."}`,
  });

describe("changeConfig", () => {
  it("sets what is given and keeps the rest", () => {
    expect(changeConfig(CONFIG, { maxSteps: 4, metadata: { team: "blue" } })).toEqual({
      instructions: "Be kind.",
      prompt: null,
      modelOptions: null,
      model: null,
      maxSteps: 4,
      noProgressLimit: 12,
      maxContextTokens: null,
      compaction: null,
      window: null,
      cache: "auto",
      metadata: { team: "blue" },
    });
    expect(CONFIG.maxSteps).toBe(32);
  });

  it("gives back the very same config when nothing changes by it", () => {
    expect(changeConfig(CONFIG, {})).toBe(CONFIG);
    expect(changeConfig(CONFIG, { instructions: "Be kind.", metadata: {} })).toBe(CONFIG);
  });

  it("reads a field that is undefined as one that is not given", () => {
    expect(changeConfig(CONFIG, { maxSteps: undefined } as never)).toBe(CONFIG);
  });

  it("replaces metadata as a whole", () => {
    const before = { ...CONFIG, metadata: { a: 1, b: 2 } };
    expect(changeConfig(before, { metadata: { b: 3 } }).metadata).toEqual({ b: 3 });
  });

  it("refuses a prompt that is none", () => {
    expect(() => changeConfig(CONFIG, { prompt: { slot: {} } as never })).toThrow(
      expect.objectContaining({ code: "invalid_prompt" }),
    );
  });

  it("forgets the size of the context with null", () => {
    expect(changeConfig({ ...CONFIG, maxContextTokens: 8_000 }, { maxContextTokens: null }).maxContextTokens).toBe(
      null,
    );
  });

  // turn §8.12
  it.each<[string, object, string]>([
    ["a setting nobody knows", { maxStep: 3 }, 'a session has no setting "maxStep". Did you mean "maxSteps"?'],
    ["instructions that are no text", { instructions: 7 }, "instructions must be a string"],
    ["no steps", { maxSteps: 0 }, "maxSteps must be a whole number from 1, or null"],
    ["half a step", { maxSteps: 1.5 }, "maxSteps must be a whole number from 1, or null"],
    ["steps without end", { maxSteps: Number.POSITIVE_INFINITY }, "maxSteps must be a whole number from 1, or null"],
    ["steps in words", { maxSteps: "many" }, "maxSteps must be a whole number from 1, or null"],
    ["no context at all", { maxContextTokens: 0 }, "maxContextTokens must be a whole number from 1, or null"],
    ["a limit of nothing", { noProgressLimit: 0 }, "noProgressLimit must be a whole number from 1, or null"],
    ["a model that is no name", { model: 7 }, "model must be the name of one of the models, or null"],
    ["metadata that is a list", { metadata: [] }, "metadata must be an object"],
    ["metadata that is nothing", { metadata: null }, "metadata must be an object"],
  ])("refuses %s", (_, change, why) => {
    expect(() => changeConfig(CONFIG, change as never)).toThrow(refusal(why));
  });
});

describe("checkConfig", () => {
  it("gives back a config that is one", () => {
    expect(checkConfig({ ...CONFIG, maxContextTokens: 1 })).toEqual({ ...CONFIG, maxContextTokens: 1 });
  });

  it("refuses one with a field missing", () => {
    const { metadata: _, ...rest } = CONFIG;
    expect(() => checkConfig(rest as never)).toThrow(refusal("metadata must be an object"));
  });
});

describe("sameConfig", () => {
  it.each<[keyof SessionConfig, unknown]>([
    ["instructions", "Be brief."],
    ["maxSteps", null],
    ["noProgressLimit", 3],
    ["model", "fast"],
    ["prompt", { slots: { guidance: { contributions: [{ content: "Be brief." }] } } }],
    ["maxContextTokens", 1],
    ["compaction", { at: 0.5 }],
    ["metadata", { a: [1] }],
  ])("sees a difference in %s", (field, value) => {
    expect(sameConfig(CONFIG, { ...CONFIG, [field]: value })).toBe(false);
    expect(sameConfig({ ...CONFIG, [field]: value }, { ...CONFIG, [field]: structuredClone(value) })).toBe(true);
  });

  it("does not mind in which order metadata was written down", () => {
    const one = { ...CONFIG, metadata: { a: 1, b: { c: 2, d: 3 } } };
    const two = { ...CONFIG, metadata: { b: { d: 3, c: 2 }, a: 1 } };
    expect(sameConfig(one, two)).toBe(true);
    expect(changeConfig(one, { metadata: two.metadata })).toBe(one);
  });
});

describe("whatever is changed", () => {
  const change = fc.record(
    {
      instructions: fc.string({ maxLength: 3 }),
      model: fc.constantFrom(null, "fast"),
      maxSteps: fc.option(fc.integer({ min: 1, max: 3 }), { nil: null }),
      maxContextTokens: fc.option(fc.integer({ min: 1, max: 3 }), { nil: null }),
      metadata: fc.dictionary(fc.constantFrom("a", "b"), fc.boolean()),
    },
    { requiredKeys: [] },
  );

  it("the same change twice changes nothing the second time, and the last of two counts", () => {
    fc.assert(
      fc.property(change, change, (first, second) => {
        const once = changeConfig(CONFIG, first);
        expect(changeConfig(once, first)).toBe(once);
        expect(changeConfig(once, second)).toEqual({ ...CONFIG, ...first, ...second });
      }),
    );
  });
});
