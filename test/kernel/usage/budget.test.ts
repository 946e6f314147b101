import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { checkBudget, checkPrices, NO_USAGE, spentOf, type Usage, whySpent } from "../../../src/kernel/index.js";

const usage = (some: Partial<Usage>): Usage => ({ ...NO_USAGE, ...some });

describe("what is spent", () => {
  it("is counted in tokens and priced by model; reasoning is part of the output and not counted twice", () => {
    const ledger = [
      { model: "small", usage: usage({ inputTokens: 500_000, outputTokens: 250_000, reasoningTokens: 200_000 }) },
      { model: "large", usage: usage({ inputTokens: 410_000, cacheReadTokens: 300_000, cacheWriteTokens: 10_000 }) },
    ];
    const prices = { small: { input: 2, output: 8 }, large: { input: 10, output: 50, cacheRead: 1 } };
    const { tokens, cost, unpriced } = spentOf(ledger, prices);
    expect([tokens, unpriced]).toEqual([1_160_000, []]);
    expect(cost).toBeCloseTo(1 + 2 + 1 + 0.3 + 0.1, 12);
  });

  it("names models nobody gave a price for, unless they were not used", () => {
    const ledger = ["b", "a", "unused"].map((model) => ({
      model,
      usage: usage({ inputTokens: model === "unused" ? 0 : 1 }),
    }));
    expect(spentOf(ledger, {})).toEqual({ tokens: 2, cost: 0, unpriced: ["a", "b"] });
  });

  it("is the same in whatever order and pieces it was spent", () => {
    const entry = fc.record({
      model: fc.constantFrom("a", "b"),
      usage: fc.nat(1_000).map((n) => usage({ inputTokens: n })),
    });
    fc.assert(
      fc.property(fc.array(entry), (ledger) => {
        const prices = { a: { input: 1, output: 1 }, b: { input: 4, output: 1 } };
        const [one, other] = [spentOf(ledger, prices), spentOf([...ledger].reverse(), prices)];
        expect(other.tokens).toBe(one.tokens);
        expect(other.cost).toBeCloseTo(one.cost, 9);
      }),
    );
  });
});

describe("a budget", () => {
  const spent = { tokens: 100, cost: 1.5, unpriced: [] };
  it.each<[string, object, string | undefined]>([
    [
      "is spent at its limit of tokens, not past it",
      { maxTokens: 100 },
      "The session has spent 100 of its 100 tokens.",
    ],
    ["has something left below it", { maxTokens: 101 }, undefined],
    ["is spent at its cost", { maxCost: 1.5 }, "The session has spent 1.5 of its 1.5."],
    ["is spent by either of the two", { maxTokens: 1_000, maxCost: 1 }, "The session has spent 1.5 of its 1."],
    ["of nothing is spent at once", { maxTokens: 0 }, "The session has spent 100 of its 0 tokens."],
  ])("%s", (_, budget, why) => {
    expect(whySpent(checkBudget(budget), spent)).toBe(why);
  });

  it.each<[string, unknown]>([
    ["nothing", undefined],
    ["no limit", {}],
    ["half a token", { maxTokens: 0.5 }],
    ["a cost below zero", { maxCost: -1 }],
    ["a cost without end", { maxCost: Number.POSITIVE_INFINITY }],
    ["another way to end", { maxTokens: 1, whenSpent: "explode" }],
    ["a spelling mistake", { maxToken: 1 }],
  ])("is refused with %s", (_, budget) => {
    expect(() => checkBudget(budget)).toThrow(expect.objectContaining({ code: "invalid_budget" }));
  });

  it.each([[{ small: { input: 1 } }], [{ small: 3 }], [{ small: { input: 1, output: "2" } }], [null]])(
    "is refused with prices like %j",
    (prices) => {
      expect(() => checkPrices(prices)).toThrow(expect.objectContaining({ code: "invalid_budget" }));
    },
  );
});
