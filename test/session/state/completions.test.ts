import { beforeEach, describe, expect, it } from "vitest";
import type { PendingTool } from "../../../src/plugin/index.js";
import { Completions } from "../../../src/session/state/completions.js";
import { Deadlines } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

/** The calls that run. */
const STEP = { facts: { sessionId: "s", turnId: "t1" }, calls: [{ callId: "c1" }, { callId: "c2" }] };
const KEY = '["s","t1","c1"]';
const OTHER = '["s","t1","c2"]';
const ANSWER = { status: "success", value: "yes" } as const;
const CANCELLED = { status: "cancelled", message: "The call of pay was cancelled." };

let clock: ManualClock;
beforeEach(() => {
  clock = new ManualClock();
});

/** A call that waits, and what came of it so far. */
function waiting(pending: PendingTool = {}, turn = new AbortController()) {
  const completions = new Completions(new Deadlines(clock));
  completions.begin(STEP);
  const wait = (key: string) => completions.wait(key, { toolName: "pay", pending, signal: turn.signal });
  const output = wait(KEY);
  let settled: unknown;
  output.then((value) => {
    settled = value;
  });
  return { completions, wait, output, turn, settled: () => settled };
}

describe("an answer that is quicker than the tool that wants it", () => {
  it("is kept for it, once", async () => {
    const { completions, wait } = waiting();
    await completions.complete(OTHER, ANSWER);
    await expect(completions.complete(OTHER, { status: "success", value: "no" })).rejects.toThrow("No tool call waits");
    expect(await wait(OTHER)).toEqual(ANSWER);
  });

  it("is for a call that runs, and forgotten with its step", async () => {
    const { completions, wait } = waiting();
    await expect(completions.complete('["s","t1","c3"]', ANSWER)).rejects.toThrow("No tool call waits");
    await expect(completions.complete('["s","t2","c2"]', ANSWER)).rejects.toThrow("No tool call waits");
    await completions.complete(OTHER, ANSWER);
    completions.end(STEP);
    await expect(completions.complete(OTHER, ANSWER)).rejects.toThrow("No tool call waits");
    const again = wait(OTHER);
    await completions.complete(OTHER, { status: "success", value: "another" });
    expect(await again).toEqual({ status: "success", value: "another" });
  });
});

describe("a call that waits for its answer", () => {
  it("gets the first one, and no other is taken", async () => {
    const { completions, output } = waiting();
    await completions.complete(KEY, ANSWER);
    expect(await output).toEqual(ANSWER);
    await expect(completions.complete(KEY, ANSWER)).rejects.toThrow("No tool call waits");
    completions.end(STEP);
    await expect(completions.complete(KEY, ANSWER)).rejects.toThrow("No tool call waits");
  });

  // turn §8.59
  it("has its key for itself: a second one under it fails, and the first goes on waiting", async () => {
    const { completions, wait, output } = waiting();
    expect(await wait(KEY)).toMatchObject({ status: "failure", failure: { code: "completion_key_taken" } });
    await completions.complete(KEY, ANSWER);
    expect(await output).toEqual(ANSWER);
  });

  it.each([
    [undefined, {}],
    ["fail_call", {}],
    ["fail_turn", { endsTurn: true }],
  ] as const)("fails at its deadline, with onTimeout %s", async (onTimeout, more) => {
    const { output } = waiting({ deadlineMs: 40, ...(onTimeout && { onTimeout }) });
    await clock.elapse(40);
    expect(await output).toEqual({
      status: "failure",
      failure: {
        kind: "timeout",
        code: "tool_completion_timeout",
        message: "pay was not completed within 40 ms.",
        ...more,
      },
    });
  });

  it.each([undefined, "cancel"] as const)("ends with its turn, with onCancel %s", async (onCancel) => {
    const { completions, output, turn } = waiting({ deadlineMs: 40, ...(onCancel && { onCancel }) });
    turn.abort();
    expect(await output).toEqual(CANCELLED);
    await expect(completions.complete(KEY, ANSWER)).rejects.toThrow("No tool call waits");
  });

  it("ends at once in a turn that is cancelled already", async () => {
    const turn = new AbortController();
    turn.abort();
    expect(await waiting({}, turn).output).toEqual(CANCELLED);
  });

  describe("with onCancel wait", () => {
    it("goes on waiting when its turn is cancelled, and its answer counts", async () => {
      const { completions, output, turn, settled } = waiting({ deadlineMs: 40, onCancel: "wait" });
      turn.abort();
      await clock.elapse(39);
      expect(settled()).toBeUndefined();
      completions.complete(KEY, ANSWER);
      expect(await output).toEqual(ANSWER);
    });

    it("waits no longer than its deadline", async () => {
      const { output, turn } = waiting({ deadlineMs: 40, onCancel: "wait" });
      turn.abort();
      await clock.elapse(40);
      expect(await output).toMatchObject({ failure: { code: "tool_completion_timeout" } });
    });

    it("ends when the runtime closes", async () => {
      const { completions, output } = waiting({ deadlineMs: 40, onCancel: "wait" });
      completions.close();
      expect(await output).toEqual(CANCELLED);
    });
  });
});
