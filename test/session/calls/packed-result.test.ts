import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type AttemptRecord, type ModelCallRecord, NO_USAGE, type TurnResult } from "../../../src/kernel/index.js";
import { packResult, unpackResult } from "../../../src/session/calls/main-lane.js";

const resultWith = (modelCallRecords: readonly ModelCallRecord[]): TurnResult => ({
  sessionId: "s",
  turnId: "t7",
  turnIndex: 7,
  revision: 8,
  outcome: { type: "finished", text: "hi" },
  text: "hi",
  usage: NO_USAGE,
  modelCalls: modelCallRecords.length,
  modelCallRecords,
  toolCalls: [],
  issues: [],
});
const count = fc.nat();
const usage = fc.record({
  inputTokens: count,
  outputTokens: count,
  cacheReadTokens: count,
  cacheWriteTokens: count,
  reasoningTokens: count,
});
const duration = fc.double({ min: 0, max: 1e6, noNaN: true });
const plain: fc.Arbitrary<AttemptRecord> = fc.record(
  {
    attempt: fc.constant(1),
    outcome: fc.constant("completed" as const),
    durationMs: duration,
    outputStarted: fc.constant(true),
    firstTokenMs: duration,
    usage,
    usageEstimated: fc.constant(true as const),
  },
  { requiredKeys: ["attempt", "outcome", "durationMs", "outputStarted", "usage"] },
);
const failed: fc.Arbitrary<AttemptRecord> = fc.record({
  attempt: fc.constant(1),
  outcome: fc.constantFrom("failed" as const, "aborted" as const),
  durationMs: fc.nat(),
  outputStarted: fc.boolean(),
  error: fc.constant({ code: "model_unreachable", message: "gone" }),
});
const odd: fc.Arbitrary<AttemptRecord> = plain.map((record) => ({ ...record, evidence: { servedModel: "m-2" } }));
const attempts = fc.oneof(
  { weight: 6, arbitrary: plain.map((record) => [record]) },
  { weight: 1, arbitrary: fc.tuple(failed, plain) },
  { weight: 1, arbitrary: failed.map((record) => [record]) },
  { weight: 1, arbitrary: odd.map((record) => [record]) },
  { weight: 1, arbitrary: fc.constant([]) },
);
const call = fc.record(
  {
    model: fc.constantFrom("a", "a", "a", "b"),
    attempts,
    replayDrops: fc.constant([{ route: "b", messages: 1, parts: 2 }]),
  },
  { requiredKeys: ["model", "attempts"] },
);

describe("a turn's result on its way to the main thread", () => {
  it("arrives as it was sent, whatever its model calls were", () => {
    fc.assert(
      fc.property(fc.array(call, { maxLength: 4 }), (calls) => {
        const records = calls.map(({ model, ...rest }, step) => ({
          modelCallId: `t7#${step}`,
          step,
          model,
          route: `${model}@here`,
          ...rest,
        }));
        const result = resultWith(records);
        expect(unpackResult(structuredClone(packResult(result)))).toEqual(result);
      }),
    );
  });

  it("carries the calls of an ordinary turn as values without keys", () => {
    const attempt = {
      attempt: 1,
      outcome: "completed",
      durationMs: 2.5,
      outputStarted: true,
      firstTokenMs: 1.5,
      usage: NO_USAGE,
    } as const;
    const ordinary = (step: number): ModelCallRecord => ({
      modelCallId: `t7#${step}`,
      step,
      model: "m",
      route: "r",
      attempts: [attempt],
    });
    expect(packResult(resultWith([ordinary(0), ordinary(1)])).modelCallRecords).toEqual([
      ...["m", "r"],
      ...[0, 2.5, 1.5, 0, 0, 0, 0, 0],
      ...[1, 2.5, 1.5, 0, 0, 0, 0, 0],
    ]);
  });
});
