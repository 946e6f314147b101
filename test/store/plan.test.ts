import { expect, test } from "vitest";
import { TroupeError } from "../../src/kernel/index.js";
import { decide, planBatch } from "../../src/store/index.js";
import { turn } from "./commits.js";

test("a commit over the revision it expects is written", () => {
  expect(decide(undefined, turn("a", 1))).toEqual({ kind: "write" });
  expect(decide(turn("a", 1).head, turn("a", 2))).toEqual({ kind: "write" });
});

test("a commit whose operation wrote the current head is replayed", () => {
  expect(decide(turn("a", 2).head, turn("a", 2))).toEqual({ kind: "replay", revision: 2 });
});

test("a commit over any other revision is refused", () => {
  expect(decide(turn("a", 5).head, turn("a", 3))).toMatchObject({ kind: "refuse", error: { code: "head_conflict" } });
  expect(decide(turn("a", 5).head, turn("a", 1))).toMatchObject({ kind: "refuse", error: { code: "session_exists" } });
});

test("a head that cannot be decoded refuses its own session's commits and no others", () => {
  const headOf = (id: string) => {
    if (id === "damaged") throw new TroupeError("snapshot_damaged", "A stored record cannot be read.");
    return undefined;
  };
  const { results, accepted } = planBatch(headOf, [turn("damaged", 1), turn("whole", 1)]);
  expect(results).toMatchObject([
    { ok: false, error: { code: "snapshot_damaged" } },
    { ok: true, revision: 1 },
  ]);
  expect(accepted.map(({ head }) => head.sessionId)).toEqual(["whole"]);
});

test("a read that fails for any other reason fails the batch", () => {
  const headOf = () => {
    throw new Error("input/output error");
  };
  expect(() => planBatch(headOf, [turn("a", 1)])).toThrow("input/output error");
});
