import { describe, expect, it } from "vitest";
import { addLedgers, ledgerSince, NO_USAGE, type Usage } from "../../src/kernel/index.js";

const used = (inputTokens: number): Usage => ({ ...NO_USAGE, inputTokens });

describe("a ledger", () => {
  it("adds up by source, and stays itself when nothing is added", () => {
    const ledger = { child: used(1) };
    expect(addLedgers(ledger, { child: used(2), titles: used(3) })).toEqual({ child: used(3), titles: used(3) });
    expect(addLedgers(ledger, {})).toBe(ledger);
  });

  it("says what came in since an earlier state of it", () => {
    const before = { child: used(1), titles: used(3) };
    const after = addLedgers(before, { child: used(2), notes: used(4) });
    expect(ledgerSince(after, before)).toEqual({ child: used(2), notes: used(4) });
    expect(ledgerSince(before, before)).toEqual({});
    expect(addLedgers(before, ledgerSince(after, before))).toEqual(after);
  });
});
