import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  checkCompaction,
  contextTokens,
  estimatedTokens,
  isCrowded,
  type Message,
  type Origin,
  planCompaction,
  SUMMARY_AUTHOR,
} from "../../../src/kernel/index.js";

const said = (role: Message["role"], tokens: number, origin?: Origin): Message => {
  const bare = '[{"type":"text","text":""}]'.length;
  const parts = [{ type: "text", text: "x".repeat(Math.max(0, tokens * 4 - bare)) }] as const;
  return { id: "m", role, parts, ...(origin && { origin }) };
};
/** So many turns of two messages of so many tokens each. */
const turns = (count: number, tokens: number): Message[] =>
  Array.from({ length: count }, (_, n) => [
    said("user", tokens, { kind: "turn_input", turnId: `t${n}` }),
    said("assistant", tokens),
  ]).flat();
const summary = (tokens: number) => said("user", tokens, { kind: "plugin", pluginId: SUMMARY_AUTHOR });

describe("the size of a context", () => {
  test("is four bytes of what messages say to a token", () => {
    expect(estimatedTokens([said("user", 25), said("assistant", 100)])).toBe(125);
  });

  test("is what was counted last and what was said behind that answer", () => {
    const turn = [said("user", 50), said("assistant", 30), said("tool", 200)];
    expect(contextTokens({ counted: 1_000, history: turns(9, 100), turn })).toBe(1_200);
  });

  test("is what was counted in the turn before and everything of this one that no model has read", () => {
    expect(contextTokens({ counted: 1_000, history: turns(9, 100), turn: [said("user", 50)] })).toBe(1_050);
  });

  test("is estimated from all there is when nothing was counted", () => {
    expect(contextTokens({ counted: null, history: turns(9, 100), turn: [said("user", 50)] })).toBe(1_850);
  });

  test("is crowded from the share on, by default four fifths, and never when nobody said what the model can read", () => {
    const crowded = (tokens: number, policy = {}) => isCrowded(tokens, { maxContextTokens: 1_000, policy });
    expect([799, 800].map((tokens) => crowded(tokens))).toEqual([false, true]);
    expect([499, 500].map((tokens) => crowded(tokens, { at: 0.5 }))).toEqual([false, true]);
    expect(isCrowded(1e9, { maxContextTokens: null, policy: {} })).toBe(false);
  });
});

describe("the plan of a compaction", () => {
  const plan = (messages: readonly Message[], policy = {}, maxContextTokens: number | null = 10_000) =>
    planCompaction(messages, { policy, maxContextTokens });

  test("keeps the first turn and the last four, and sums up what is between them", () => {
    expect(plan(turns(20, 200))).toEqual({ keep: 2, from: 32 });
  });

  test("keeps as many of the last turns as it is told, and none with 0", () => {
    expect(plan(turns(20, 200), { keepTurns: 2 })).toEqual({ keep: 2, from: 36 });
    expect(plan(turns(20, 200), { keepTurns: 0 })).toEqual({ keep: 2, from: 40 });
  });

  test("keeps fewer of the last turns when they would take half of the room", () => {
    const large = [...turns(20, 200), ...turns(2, 1_500)];
    expect(plan(large)).toEqual({ keep: 2, from: 44 });
    expect(plan([...turns(20, 200), ...turns(2, 700)])).toEqual({ keep: 2, from: 42 });
  });

  test("leaves a first turn out that would take a quarter of the room", () => {
    expect(plan([...turns(1, 900), ...turns(20, 200)])?.keep).toBe(0);
  });

  test("goes on behind the last summary, so that everything before it stays in the provider's cache", () => {
    const before = [...turns(1, 100), summary(300)];
    expect(plan([...before, ...turns(20, 200)])).toEqual({ keep: 3, from: 35 });
    // Too much by now: the summary is summed up with the rest.
    expect(plan([...turns(1, 100), summary(2_000), ...turns(20, 200)])).toEqual({ keep: 2, from: 35 });
  });

  test("is none when there is hardly anything to sum up", () => {
    expect(plan([])).toBeUndefined();
    expect(plan(turns(3, 100))).toBeUndefined();
    expect(plan(turns(1, 10))).toBeUndefined();
  });

  test("goes by what there is when nobody says how much the model can read", () => {
    expect(plan(turns(20, 200), {}, null)).toEqual({ keep: 2, from: 32 });
  });

  test("does not take what was said into a running turn for the beginning of one", () => {
    const steered = turns(20, 200).flatMap((message, n) =>
      n % 2 === 0 ? [message, said("user", 10, { kind: "turn_input", turnId: "t", inputId: "i" })] : [message],
    );
    expect(plan(steered)).toEqual({ keep: 3, from: 48 });
  });

  test("never begins what it keeps of the end with a tool's result, and keeps no more than it may", () => {
    const message = fc.record({
      role: fc.constantFrom<Message["role"]>("user", "assistant", "tool"),
      tokens: fc.integer({ min: 8, max: 2_000 }),
    });
    fc.assert(
      fc.property(fc.array(message, { maxLength: 60 }), fc.integer({ min: 0, max: 8 }), (list, keepTurns) => {
        const messages = list.map(({ role, tokens }) => said(role, tokens));
        const found = plan(messages, { keepTurns });
        if (found === undefined) return;
        const { keep, from } = found;
        expect(keep).toBeLessThan(from);
        if (from < messages.length) expect(messages[from]?.role).toBe("user");
        expect(estimatedTokens(messages.slice(from))).toBeLessThanOrEqual(2_000);
        expect(estimatedTokens(messages.slice(0, keep))).toBeLessThanOrEqual(1_000);
      }),
    );
  });
});

describe("a compaction from outside", () => {
  test("may say nothing: then everything is as it is by default", () => {
    expect(checkCompaction({})).toEqual({});
  });

  test.each([
    [7, "it is an object such as { at: 0.8, keepTurns: 4 }; {} takes these"],
    [{ at: 0 }, "at must be a share of maxContextTokens: more than 0, and 1 at most"],
    [{ at: 1.1 }, "at must be a share of maxContextTokens: more than 0, and 1 at most"],
    [{ keepTurns: -1 }, "keepTurns must be a whole number from 0"],
    [{ keepTurns: 1.5 }, "keepTurns must be a whole number from 0"],
    [{ instructions: " " }, "instructions must be a text that says something"],
    [{ summary: "yes" }, "summary must be true or false"],
    [{ keepTurn: 2 }, 'compaction has no field "keepTurn". Did you mean "keepTurns"?'],
  ])("%j is refused: %s", (policy, why) => {
    expect(() => checkCompaction(policy)).toThrow(
      expect.objectContaining({ code: "invalid_compaction", message: expect.stringContaining(why) }),
    );
  });
});
