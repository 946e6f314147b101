import { describe, expect, it } from "vitest";
import {
  addInput,
  cancelInput,
  claimAtCheckpoint,
  claimForTurn,
  deferMissed,
  type PendingInput,
  withoutInputs,
} from "../../../src/kernel/index.js";
import { MAX_CLAIMED, MAX_PENDING } from "../../../src/kernel/turn/turn-input.js";

const next = (id: string, more: Partial<PendingInput> = {}): PendingInput => ({
  id,
  text: `text of ${id}`,
  waitsFor: { kind: "next_turn" },
  ...more,
});
const steer = (id: string, boundary: "after_work" | "before_completion" = "after_work", turnId = "t1"): PendingInput =>
  next(id, { waitsFor: { kind: "active_turn", turnId, boundary } });

describe("pending inputs", () => {
  it("wait in the order they came", () => {
    const { pending } = addInput(addInput([], next("a")).pending, next("b"));
    expect(pending.map(({ id }) => id)).toEqual(["a", "b"]);
  });

  it("wait once under one key, and conflict when the text differs", () => {
    const { pending } = addInput([], next("a", { key: "k", text: "hello" }));
    expect(addInput(pending, next("b", { key: "k", text: "hello" }))).toEqual({ pending, input: pending[0] });
    expect(() => addInput(pending, next("b", { key: "k", text: "bye" }))).toThrow(
      expect.objectContaining({ code: "input_key_conflict", details: { key: "k" } }),
    );
  });

  it("are refused when too many wait", () => {
    const full = Array.from({ length: MAX_PENDING }, (_, n) => next(`i${n}`));
    expect(() => addInput(full, next("one more"))).toThrow(
      expect.objectContaining({ code: "inputs_full", retryable: true }),
    );
  });

  it("for the running turn are claimed at the first checkpoint their boundary admits", () => {
    const pending = [steer("early"), steer("late", "before_completion"), steer("other", "after_work", "t2"), next("n")];
    const ids = (kind: "after_work" | "before_completion") =>
      claimAtCheckpoint(pending, "t1", kind).map(({ id }) => id);
    expect(ids("after_work")).toEqual(["early"]);
    expect(ids("before_completion")).toEqual(["early", "late"]);
  });

  it("for the next turn are claimed together, up to a limit", () => {
    const pending = [steer("s"), ...Array.from({ length: MAX_CLAIMED + 1 }, (_, n) => next(`i${n}`))];
    const claimed = claimForTurn(pending);
    expect(claimed).toHaveLength(MAX_CLAIMED);
    expect(claimed[0]?.id).toBe("i0");
    expect(withoutInputs(pending, claimed).map(({ id }) => id)).toEqual(["s", `i${MAX_CLAIMED}`]);
  });

  it("that are turns of their own are claimed alone, and those before and behind them without them", () => {
    const own = (id: string) => ({ ...next(id), ownTurn: true });
    let pending = [next("a"), next("b"), own("c"), own("d"), next("e"), next("f")];
    const turns: string[][] = [];
    while (pending.length > 0) {
      const claimed = claimForTurn(pending);
      turns.push(claimed.map(({ id }) => id));
      pending = [...withoutInputs(pending, claimed)];
    }
    expect(turns).toEqual([["a", "b"], ["c"], ["d"], ["e", "f"]]);
  });

  // turn §8.28
  it("that missed their turn wait for the next", () => {
    const pending = [steer("missed"), next("n")];
    expect(deferMissed(pending)).toEqual([next("missed"), next("n")]);
    const untouched = [next("n")];
    expect(deferMissed(untouched)).toBe(untouched);
  });

  it("can be taken back by id or key, once", () => {
    const pending = [next("a", { key: "k" }), next("b")];
    expect(cancelInput(pending, "k")).toEqual({ pending: [next("b")], result: "cancelled" });
    expect(cancelInput(pending, "b")).toEqual({ pending: [pending[0]], result: "cancelled" });
    expect(cancelInput(pending, "c")).toEqual({ pending, result: "not_found" });
  });
});
