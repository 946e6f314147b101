import { describe, expect, it } from "vitest";
import { addUsage, checkUsage, isZeroUsage, NO_USAGE, type Usage } from "../../../src/kernel/index.js";

const MOST = Number.MAX_SAFE_INTEGER;

describe("what a model says it counted", () => {
  it("is taken when every count is a whole number from 0", () => {
    expect(() => checkUsage({ ...NO_USAGE, inputTokens: MOST })).not.toThrow();
    expect(() => checkUsage(NO_USAGE)).not.toThrow();
  });

  // turn §8.10
  it.each<[string, Partial<Record<keyof Usage, unknown>>, string]>([
    ["negative", { inputTokens: -1 }, "token_usage_invalid"],
    ["a fraction", { outputTokens: 1.5 }, "token_usage_invalid"],
    ["no number", { reasoningTokens: Number.NaN }, "token_usage_invalid"],
    ["a word", { cacheReadTokens: "12" }, "token_usage_invalid"],
    ["left out", { cacheReadTokens: undefined }, "token_usage_invalid"],
    ["endless", { inputTokens: Number.POSITIVE_INFINITY }, "token_usage_overflow"],
    ["more than can be counted", { inputTokens: MOST + 1 }, "token_usage_overflow"],
    ["too much with the answer", { inputTokens: MOST, outputTokens: 1 }, "token_usage_overflow"],
    // The whole call could be counted, but not what of its prompt came from and went into a cache.
    ["too much of a cache", { inputTokens: 1, cacheReadTokens: MOST, cacheWriteTokens: 1 }, "token_usage_overflow"],
  ])("is refused when it is %s", (_, counts, code) => {
    // What comes from a provider has any shape it likes.
    expect(() => checkUsage({ ...NO_USAGE, ...counts } as Usage)).toThrow(expect.objectContaining({ code }));
  });

  it("is refused when there is nothing at all", () => {
    expect(() => checkUsage(undefined as unknown as Usage)).toThrow(
      expect.objectContaining({ code: "token_usage_invalid" }),
    );
  });
});

describe("usage", () => {
  it("adds up counter by counter", () => {
    const one: Usage = { inputTokens: 1, outputTokens: 2, cacheReadTokens: 3, cacheWriteTokens: 4, reasoningTokens: 5 };
    expect(addUsage(one, one)).toEqual({
      inputTokens: 2,
      outputTokens: 4,
      cacheReadTokens: 6,
      cacheWriteTokens: 8,
      reasoningTokens: 10,
    });
  });

  // turn §8.10
  it("is never added up to something inexact", () => {
    expect(() => addUsage({ ...NO_USAGE, outputTokens: MOST }, { ...NO_USAGE, outputTokens: 1 })).toThrow(
      expect.objectContaining({ code: "token_usage_overflow", details: { counter: "outputTokens" } }),
    );
  });

  it("is zero when every counter is", () => {
    expect(isZeroUsage(NO_USAGE)).toBe(true);
    for (const counter of Object.keys(NO_USAGE)) expect(isZeroUsage({ ...NO_USAGE, [counter]: 1 })).toBe(false);
  });
});
