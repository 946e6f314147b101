import { describe, expect, it } from "vitest";
import {
  checkRetryPolicy,
  delayBeforeRetry,
  exhaustedRetries,
  type ToolOutput,
  type ToolRetryPolicy,
  toolFailure,
} from "../../../src/kernel/index.js";

const policy = (kind: "safe" | "idempotent", more: Partial<ToolRetryPolicy> = {}): ToolRetryPolicy => ({
  policy: kind,
  maxAttempts: 3,
  baseDelayMs: 100,
  maxDelayMs: 0,
  ...more,
});
const failed = (code: string, retry?: { kind: "safe"; afterMs?: number }): ToolOutput => {
  const output = toolFailure("execution", code, "It failed.");
  return output.status === "failure" && retry ? { ...output, failure: { ...output.failure, retry } } : output;
};
const BUSY = failed("tool_busy", { kind: "safe" });

// turn §8.57
describe("a failed tool call", () => {
  it("is not made again without a policy", () => {
    expect(delayBeforeRetry(undefined, 1, BUSY)).toBeUndefined();
  });

  it("is made again when the tool says that it may be, each time after twice as long", () => {
    expect(delayBeforeRetry(policy("safe"), 1, BUSY)).toBe(100);
    expect(delayBeforeRetry(policy("safe"), 2, BUSY)).toBe(200);
    expect(delayBeforeRetry(policy("safe"), 3, BUSY)).toBeUndefined();
  });

  it("is made again when the tool says to, and never later than the cap", () => {
    const later = failed("tool_busy", { kind: "safe", afterMs: 5_000 });
    expect(delayBeforeRetry(policy("safe"), 1, later)).toBe(5_000);
    expect(delayBeforeRetry(policy("safe", { maxDelayMs: 1_000 }), 1, later)).toBe(1_000);
    expect(delayBeforeRetry(policy("safe", { maxDelayMs: 150 }), 2, BUSY)).toBe(150);
  });

  it.each(["tool_timeout", "tool_worker_lost"])("by %s is made again only when doing it twice does no harm", (code) => {
    expect(delayBeforeRetry(policy("safe"), 1, failed(code))).toBeUndefined();
    expect(delayBeforeRetry(policy("idempotent"), 1, failed(code))).toBe(100);
  });

  it("of any other sort is not made again, nor is one that succeeded or was cancelled", () => {
    expect(delayBeforeRetry(policy("idempotent"), 1, failed("tool_failed"))).toBeUndefined();
    expect(delayBeforeRetry(policy("idempotent"), 1, { status: "success", value: 1 })).toBeUndefined();
    expect(delayBeforeRetry(policy("idempotent"), 1, { status: "cancelled", message: "" })).toBeUndefined();
  });

  it("says when its attempts are used up", () => {
    expect(exhaustedRetries(policy("safe"), 3, BUSY)).toMatchObject({
      failure: { code: "tool_busy", retry: { kind: "exhausted", attempts: 3 } },
    });
    expect(exhaustedRetries(policy("safe"), 1, BUSY)).toBe(BUSY);
    const other = failed("tool_failed");
    expect(exhaustedRetries(policy("safe"), 3, other)).toBe(other);
  });
});

describe("a retry policy", () => {
  it("has defaults", () => {
    expect(checkRetryPolicy("Tool t", undefined)).toBeUndefined();
    expect(checkRetryPolicy("Tool t", "never")).toBeUndefined();
    expect(checkRetryPolicy("Tool t", "safe")).toEqual(policy("safe", { maxDelayMs: 10_000 }));
    expect(checkRetryPolicy("Tool t", { policy: "idempotent", maxAttempts: 5 })).toEqual(
      policy("idempotent", { maxAttempts: 5, maxDelayMs: 10_000 }),
    );
  });

  it.each([7, "often", {}, { policy: "safe", maxAttempts: 0 }, { policy: "safe", baseDelayMs: -1 }])(
    "that is %j is refused",
    (given) => {
      expect(() => checkRetryPolicy("Tool t", given)).toThrow(expect.objectContaining({ code: "invalid_tool" }));
    },
  );
});
