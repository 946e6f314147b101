import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type ContextPiece,
  checkPieces,
  contextMessages,
  firstPlace,
  type Message,
  wholeContext,
} from "../../../src/kernel/index.js";

const history: readonly Message[] = ["a", "b", "c", "d"].map((text, index) => ({
  id: `m${index}`,
  role: index % 2 === 0 ? "user" : "assistant",
  parts: [{ type: "text", text }],
}));
const all = { start: 0, messages: history };
const prepared = (...messages: ContextPiece[]) => ({ ...wholeContext(4), messages });
const idsOf = (messages: readonly Message[]) => messages.map(({ id }) => id);

describe("wholeContext", () => {
  it("is the whole history with the base tools and nothing else", () => {
    expect(wholeContext(4)).toEqual({
      messages: [{ from: 0, to: 4 }],
      promptContributions: [],
      tools: [],
      includeBaseTools: true,
    });
  });

  it("has no pieces when there is no history", () => {
    expect(wholeContext(0).messages).toEqual([]);
    expect(contextMessages(wholeContext(0), { start: 0, messages: [] }, "t1")).toEqual([]);
  });
});

describe("contextMessages", () => {
  it("is the history itself, not a copy, when nobody transformed it", () => {
    expect(contextMessages(wholeContext(4), all, "t1")).toBe(history);
  });

  it("takes the pieces in their order, however often each is wanted", () => {
    const messages = contextMessages(prepared({ from: 2, to: 4 }, { from: 0, to: 1 }, { from: 3, to: 4 }), all, "t1");
    expect(idsOf(messages)).toEqual(["m2", "m3", "m0", "m3"]);
    expect(messages[0]).toBe(history[2]);
  });

  it("puts in messages of the transform's own, named after the turn and their place", () => {
    const pieces = prepared({ role: "system", text: "So far: a, b." }, { from: 2, to: 4 }, { role: "user", text: "x" });
    const messages = contextMessages(pieces, all, "t7");
    expect(idsOf(messages)).toEqual(["t7.context.0", "m2", "m3", "t7.context.2"]);
    expect(messages[0]).toEqual({
      id: "t7.context.0",
      role: "system",
      parts: [{ type: "text", text: "So far: a, b." }],
    });
  });

  it("needs no more of the history than its oldest message", () => {
    const pieces = prepared({ from: 3, to: 4 }, { role: "user", text: "x" }, { from: 1, to: 1 }, { from: 2, to: 3 });
    expect(firstPlace(pieces)).toBe(2);
    for (const start of [0, 1, 2]) {
      const messages = contextMessages(pieces, { start, messages: history.slice(start) }, "t1");
      expect(idsOf(messages)).toEqual(["m3", "t1.context.1", "m2"]);
    }
    expect(firstPlace(prepared({ role: "user", text: "x" }))).toBe(Number.POSITIVE_INFINITY);
    expect(firstPlace(wholeContext(4))).toBe(0);
  });

  it("may be nothing at all", () => {
    expect(contextMessages(prepared(), all, "t1")).toEqual([]);
    expect(contextMessages(prepared({ from: 2, to: 2 }), all, "t1")).toEqual([]);
  });

  it("does not take the history's beginning for the whole of it", () => {
    expect(idsOf(contextMessages(prepared({ from: 0, to: 3 }), all, "t1"))).toEqual(["m0", "m1", "m2"]);
  });

  // turn §8.48
  it("never changes the history", () => {
    const before = structuredClone(history);
    contextMessages(prepared({ role: "user", text: "x" }, { from: 0, to: 4 }), all, "t1");
    expect(history).toEqual(before);
  });
});

describe("checkPieces", () => {
  const refusal = (why: string) =>
    expect.objectContaining({ code: "invalid_context", message: `The prepared context cannot be used: ${why}.` });

  it("takes places inside the history and messages of its own", () => {
    const pieces = [
      { from: 0, to: 4 },
      { from: 4, to: 4 },
      { role: "assistant", text: "" },
    ];
    expect(checkPieces(pieces, 4)).toBe(pieces);
    expect(checkPieces([], 0)).toEqual([]);
  });

  it.each<[string, unknown, string]>([
    ["what is no list", { from: 0, to: 1 }, "its messages must be a list"],
    ["a piece that is none", [null], "a piece of it is no object"],
    ["a piece that is a text", ["all"], "a piece of it is no object"],
    ["a place before the history", [{ from: -1, to: 1 }], "messages -1 to 1 are not in a history of 4"],
    ["a place behind it", [{ from: 0, to: 5 }], "messages 0 to 5 are not in a history of 4"],
    ["an end before its beginning", [{ from: 3, to: 1 }], "messages 3 to 1 are not in a history of 4"],
    ["half a place", [{ from: 0.5, to: 1 }], "messages 0.5 to 1 are not in a history of 4"],
    ["a beginning without an end", [{ from: 0 }], "messages 0 to undefined are not in a history of 4"],
    ["an end without a beginning", [{ to: 1 }], "messages undefined to 1 are not in a history of 4"],
    [
      "a message without a text",
      [{ role: "user" }],
      "a message of its own needs a role (user, system, assistant) and a text",
    ],
    [
      "a message in the role of a tool",
      [{ role: "tool", text: "x" }],
      "a message of its own needs a role (user, system, assistant) and a text",
    ],
    [
      "the second of two",
      [{ from: 0, to: 1 }, {}],
      "a message of its own needs a role (user, system, assistant) and a text",
    ],
  ])("refuses %s", (_, pieces, why) => {
    expect(() => checkPieces(pieces, 4)).toThrow(refusal(why));
  });

  it("lets through only what can be read: as many messages as the pieces say", () => {
    const piece = fc.oneof(
      fc.record({ from: fc.integer({ min: -1, max: 5 }), to: fc.integer({ min: -1, max: 5 }) }),
      fc.record({ role: fc.constantFrom("user" as const, "system" as const), text: fc.string() }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 5 }), (pieces) => {
        let checked: readonly ContextPiece[];
        try {
          checked = checkPieces(pieces, history.length);
        } catch (error) {
          expect(error).toMatchObject({ code: "invalid_context" });
          return;
        }
        const wanted = checked.reduce((sum, each) => sum + ("from" in each ? each.to - each.from : 1), 0);
        expect(contextMessages(prepared(...checked), all, "t1")).toHaveLength(wanted);
      }),
    );
  });
});
