import { beforeEach, describe, expect, it } from "vitest";
import { deferred } from "../../../src/async/index.js";
import { completionKeyOf } from "../../../src/kernel/ids.js";
import type { PendingTool } from "../../../src/plugin/index.js";
import { Completions } from "../../../src/session/state/completions.js";
import { Deadlines } from "../../../src/wire/index.js";
import { ManualClock } from "../../support/manual-clock.js";

/** The calls that run. */
const STEP = { facts: { sessionId: "s", turnId: "t1" }, calls: [{ callId: "c1" }, { callId: "c2" }] };
const KEY = completionKeyOf("s", "t1", "c1");
const OTHER = completionKeyOf("s", "t1", "c2");
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
    expect(await completions.complete(OTHER, ANSWER)).toBe("counted");
    expect(await completions.complete(OTHER, { status: "success", value: "no" })).toBe("already_answered");
    expect(await wait(OTHER)).toEqual(ANSWER);
  });

  it("is for a call that runs, and forgotten with its step", async () => {
    const { completions, wait } = waiting();
    expect(await completions.complete(completionKeyOf("s", "t1", "c3"), ANSWER)).toBeUndefined();
    expect(await completions.complete(completionKeyOf("s", "t2", "c2"), ANSWER)).toBeUndefined();
    await completions.complete(OTHER, ANSWER);
    completions.end(STEP);
    expect(await completions.complete(OTHER, ANSWER)).toBe("already_answered");
    const again = wait(OTHER);
    expect(await completions.complete(OTHER, { status: "success", value: "another" })).toBe("counted");
    expect(await again).toEqual({ status: "success", value: "another" });
  });
});

describe("a call that waits for its answer", () => {
  it("gets the first one, and no other is taken", async () => {
    const { completions, output } = waiting();
    expect(await completions.complete(KEY, ANSWER)).toBe("counted");
    expect(await output).toEqual(ANSWER);
    expect(await completions.complete(KEY, ANSWER)).toBe("already_answered");
    completions.end(STEP);
    expect(await completions.complete(KEY, ANSWER)).toBe("already_answered");
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
    expect(await completions.complete(KEY, ANSWER)).toBeUndefined();
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

describe("a call that waits for a yes", () => {
  const YES = { approved: true } as const;

  function asking(allowed = false, problem?: string) {
    const completions = new Completions(new Deadlines(clock));
    const { signal } = new AbortController();
    const editing = { allowed, problemWith: async () => problem };
    const wait = () => completions.wait(KEY, { toolName: "pay", pending: {}, signal, editing });
    return { completions, wait };
  }

  it("tells the second of two answers that come at once that the first one counts, when that is kept", async () => {
    const { completions, wait } = asking();
    const verdict = wait();
    const kept = deferred<undefined>();
    const first = completions.complete(KEY, YES, () => kept.promise);
    const second = completions.complete(KEY, { approved: false, reason: "No." });
    kept.resolve(undefined);
    expect(await Promise.all([first, second, verdict])).toEqual(["counted", "already_answered", YES]);
  });

  it("takes the second of two answers that come at once when the first one could not be kept", async () => {
    const { completions, wait } = asking();
    const verdict = wait();
    const first = completions.complete(KEY, YES, () => Promise.reject(new Error("The disk is full.")));
    const second = completions.complete(KEY, { approved: false, reason: "No." });
    await expect(first).rejects.toThrow("The disk is full.");
    expect([await second, await verdict]).toEqual(["counted", { approved: false, reason: "No." }]);
  });

  it("has the answer that was kept before, and who gave another one is told so", async () => {
    const { completions, wait } = asking();
    const verdict = wait();
    const no = { approved: false, reason: "No." } as const;
    expect(await completions.complete(KEY, YES, async () => no)).toBe("already_answered");
    expect(await verdict).toEqual(no);
  });

  it("is not answered by a second one while the arguments of the first are looked at", async () => {
    const looked = deferred<undefined>();
    const completions = new Completions(new Deadlines(clock));
    const editing = { allowed: true, problemWith: () => looked.promise };
    const verdict = completions.wait(KEY, {
      toolName: "pay",
      pending: {},
      signal: new AbortController().signal,
      editing,
    });
    const first = completions.complete(KEY, { approved: true, args: { amount: 1 } });
    const second = completions.complete(KEY, YES);
    looked.resolve(undefined);
    expect(await Promise.all([first, second])).toEqual(["counted", "already_answered"]);
    expect(await verdict).toEqual({ approved: true, args: { amount: 1 } });
  });

  it("has other arguments looked at when it has come to wait again after a crash, and not before", async () => {
    const { completions, wait } = asking(true);
    completions.expect(KEY, "verdict");
    const edited = completions.complete(KEY, { approved: true, args: { amount: 1 } });
    const verdict = wait();
    expect([await edited, await verdict]).toEqual(["counted", { approved: true, args: { amount: 1 } }]);
  });

  it("that does not come to wait again has no answer that counts", async () => {
    const { completions } = asking(true);
    completions.expect(KEY, "verdict");
    const edited = completions.complete(KEY, { approved: true, args: { amount: 1 } });
    completions.turnEnded();
    expect(await edited).toBeUndefined();
  });

  it("is answered by nothing but a yes or no, and one that waits for a result by nothing but that", async () => {
    const { completions, wait } = asking();
    const verdict = wait();
    await expect(completions.complete(KEY, ANSWER)).rejects.toMatchObject({ code: "answer_unusable" });
    await completions.complete(KEY, YES);
    expect(await verdict).toEqual(YES);
    const other = waiting();
    await expect(other.completions.complete(KEY, YES)).rejects.toMatchObject({ code: "answer_unusable" });
    await other.completions.complete(KEY, ANSWER);
    expect(await other.output).toEqual(ANSWER);
  });
});
