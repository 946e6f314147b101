import { expect, test } from "vitest";
import { TroupeError } from "../../../src/kernel/index.js";
import type { HookKind } from "../../../src/plugin/index.js";
import { PluginPolicy } from "../../../src/session/plugins/failure-policy.js";
import { ManualClock } from "../../support/manual-clock.js";

const DEADLINE_MS = 250;

/** Two plugins, of which the first has let five calls of its beforeTurn hang. */
function hanging() {
  const clock = new ManualClock();
  const [one, other] = ["one", "other"].map((id) => new PluginPolicy(id, { clock, deadlineMs: DEADLINE_MS })) as [
    PluginPolicy,
    PluginPolicy,
  ];
  for (let call = 0; call < 5; call++) {
    const started = clock.now();
    clock.advance(DEADLINE_MS);
    const missed = new TroupeError("hook_timeout", "It did not answer.");
    one.failed({ kind: "before_turn", sessionId: `s${call}`, started, aborted: false }, missed);
  }
  const isAsked = (policy: PluginPolicy, kind: HookKind) => {
    try {
      policy.admit(kind, "s");
      return true;
    } catch (error) {
      expect(error).toMatchObject({ code: "breaker_open" });
      return false;
    }
  };
  return { one, other, isAsked };
}

test("a plugin one of whose hooks hangs again and again is not asked for that kind, and for every other as before", () => {
  const { one, isAsked } = hanging();
  expect([isAsked(one, "before_turn"), isAsked(one, "after_turn"), isAsked(one, "before_tool_call")]).toEqual([
    false,
    true,
    true,
  ]);
});

test("that another plugin's hook of the same kind hangs keeps a plugin from nothing", () => {
  const { other, isAsked } = hanging();
  expect(isAsked(other, "before_turn")).toBe(true);
});

test("an answer of a hook of another kind does not close the breaker of the one that hangs", () => {
  const { one, isAsked } = hanging();
  one.answered("after_turn");
  expect(isAsked(one, "before_turn")).toBe(false);
});
