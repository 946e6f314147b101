import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  addEntry,
  addLedgers,
  type Ledger,
  type LedgerEntry,
  ledgerOf,
  ledgerSince,
  NO_USAGE,
  sharingOwn,
  type Usage,
  usageReport,
} from "../../../src/kernel/index.js";

const MOST = Number.MAX_SAFE_INTEGER;
const used = (inputTokens: number): Usage => ({ ...NO_USAGE, inputTokens });
const entry = (source: string, model: string, spent: number): LedgerEntry => ({ source, model, usage: used(spent) });

describe("a ledger", () => {
  it("adds up by source and model, and stays itself when nothing is added", () => {
    const ledger = [entry("child", "a", 1)];
    expect(addLedgers(ledger, [entry("child", "a", 2), entry("child", "b", 3), entry("titles", "a", 4)])).toEqual([
      entry("child", "a", 3),
      entry("child", "b", 3),
      entry("titles", "a", 4),
    ]);
    expect(addLedgers(ledger, [])).toBe(ledger);
  });

  it("has no entry for what cost nothing", () => {
    const ledger = [entry("turn", "a", 1)];
    expect(addEntry(ledger, entry("titles", "a", 0))).toBe(ledger);
    expect(usageReport(addEntry([], entry("turn", "a", 0))).bySourceModel).toEqual([]);
  });

  it("says what came in since an earlier state of it", () => {
    const before = [entry("child", "a", 1), entry("titles", "a", 3)];
    const after = addLedgers(before, [entry("child", "a", 2), entry("notes", "b", 4)]);
    expect(ledgerSince(after, before)).toEqual([entry("child", "a", 2), entry("notes", "b", 4)]);
    expect(ledgerSince(before, before)).toEqual([]);
    expect(addLedgers(before, ledgerSince(after, before))).toEqual(after);
  });

  // turn §8.10
  it("refuses a sum that cannot be counted exactly, naming source, model and counter, and is not changed by it", () => {
    const ledger = [entry("turn", "a", MOST)];
    expect(() => addEntry(ledger, entry("turn", "a", 1))).toThrow(
      expect.objectContaining({
        code: "token_usage_overflow",
        details: { source: "turn", model: "a", counter: "inputTokens" },
      }),
    );
    expect(ledger).toEqual([entry("turn", "a", MOST)]);
    expect(addEntry(ledger, entry("turn", "b", 1))).toHaveLength(2);
  });

  it("holds the session's own usage itself where both say the same", () => {
    const usage = used(5);
    const [own] = sharingOwn([entry("turn", "a", 5)], usage);
    expect(own).toEqual(entry("turn", "a", 5));
    expect(own?.usage).toBe(usage);
    const two = [entry("turn", "a", 2), entry("turn", "b", 3)];
    expect(sharingOwn(two, usage)).toBe(two);
    expect(sharingOwn([], usage)).toEqual([]);
  });
});

// state §14
describe("the ledger of a stored head", () => {
  it("is read as it is when it is by source and model", () => {
    const ledger = [entry("turn", "a", 5)];
    expect(ledgerOf({ usage: used(5), ledger })).toBe(ledger);
  });

  it("of a version that knew sources only has the session's own calls too, all of a model nobody wrote down", () => {
    expect(ledgerOf({ usage: used(5), ledger: { child: used(1), titles: used(2) } })).toEqual([
      entry("turn", "unknown", 5),
      entry("child", "unknown", 1),
      entry("titles", "unknown", 2),
    ]);
  });

  it("of a version without ledgers is the session's own calls, or empty when there were none", () => {
    expect(ledgerOf({ usage: used(5) })).toEqual([entry("turn", "unknown", 5)]);
    expect(ledgerOf({ usage: NO_USAGE })).toEqual([]);
  });
});

// state §14
const UNCACHED = { inputTokens: 0, cachedInputTokens: 0, cacheReadShare: 0 };

describe("a usage report", () => {
  it("adds up in total, by source and by model", () => {
    const ledger = [entry("turn", "a", 1), entry("turn", "b", 2), entry("child", "a", 4)];
    expect(usageReport(ledger)).toEqual({
      total: used(7),
      bySource: { turn: used(3), child: used(4) },
      byModel: { a: used(5), b: used(2) },
      bySourceModel: ledger,
      cache: {
        ...UNCACHED,
        inputTokens: 7,
        byModel: { a: { ...UNCACHED, inputTokens: 5 }, b: { ...UNCACHED, inputTokens: 2 } },
      },
      saturated: false,
    });
    expect(usageReport([])).toEqual({
      total: NO_USAGE,
      bySource: {},
      byModel: {},
      bySourceModel: [],
      cache: { ...UNCACHED, byModel: {} },
      saturated: false,
    });
  });

  it("says what share of the input came from a cache, in total and by model", () => {
    const read = (model: string, inputTokens: number, cacheReadTokens: number): LedgerEntry => ({
      source: "turn",
      model,
      usage: { ...NO_USAGE, inputTokens, cacheReadTokens },
    });
    expect(usageReport([read("a", 1_000, 900), read("b", 1_000, 0)]).cache).toEqual({
      inputTokens: 2_000,
      cachedInputTokens: 900,
      cacheReadShare: 0.45,
      byModel: {
        a: { inputTokens: 1_000, cachedInputTokens: 900, cacheReadShare: 0.9 },
        b: { inputTokens: 1_000, cachedInputTokens: 0, cacheReadShare: 0 },
      },
    });
  });

  it("says so when a sum is too much, and stays at the most there is", () => {
    const { total, byModel, saturated } = usageReport([entry("turn", "a", MOST), entry("child", "b", 1)]);
    expect([total, saturated]).toEqual([used(MOST), true]);
    expect(byModel).toEqual({ a: used(MOST), b: used(1) });
  });

  it("keeps sources and models apart that are named like nothing a source should be", () => {
    const ledger = [entry("__proto__", "constructor", 1), entry("constructor", "__proto__", 2)];
    const { bySource, byModel } = usageReport(addLedgers([], ledger));
    expect(Object.entries(bySource)).toEqual([
      ["__proto__", used(1)],
      ["constructor", used(2)],
    ]);
    expect(Object.keys(byModel)).toEqual(["constructor", "__proto__"]);
  });

  it("comes to the same total by source, by model and entry by entry, in whatever order it was spent", () => {
    const names = fc.constantFrom("turn", "child", "titles", "__proto__");
    const count = fc.nat({ max: 1_000_000 });
    const spending = fc.record({
      source: names,
      model: names,
      usage: fc.record({
        inputTokens: count,
        outputTokens: count,
        cacheReadTokens: count,
        cacheWriteTokens: count,
        reasoningTokens: count,
      }),
    });
    const sum = (usages: readonly Usage[], counter: keyof Usage) =>
      usages.reduce((total, usage) => total + usage[counter], 0);
    fc.assert(
      fc.property(fc.array(spending, { maxLength: 30 }), fc.nat(), (spent, cut) => {
        // Counted in two halves that are written at different times.
        const first = spent.slice(0, cut % (spent.length + 1)).reduce<Ledger>(addEntry, []);
        const ledger = spent.reduce<Ledger>(addEntry, []);
        const written = addLedgers(first, ledgerSince(ledger, first));
        const { total, bySource, byModel, bySourceModel } = usageReport(written);
        for (const counter of Object.keys(NO_USAGE) as (keyof Usage)[]) {
          const expected = sum(
            spent.map(({ usage }) => usage),
            counter,
          );
          expect(total[counter]).toBe(expected);
          expect(sum(Object.values(bySource), counter)).toBe(expected);
          expect(sum(Object.values(byModel), counter)).toBe(expected);
          expect(
            sum(
              bySourceModel.map(({ usage }) => usage),
              counter,
            ),
          ).toBe(expected);
        }
        const pairs = bySourceModel.map(({ source, model }) => `${source}/${model}`);
        expect(new Set(pairs).size).toBe(pairs.length);
      }),
    );
  });
});
