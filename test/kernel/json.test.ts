import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Json } from "../../src/kernel/index.js";
import { sameJson, wellFormed } from "../../src/kernel/json.js";

describe("sameJson", () => {
  it.each<[Json, Json]>([
    [1, "1"],
    [0, false],
    [null, {}],
    [[], {}],
    [[1], { 0: 1 }],
    [
      [1, 2],
      [2, 1],
    ],
    [{ a: 1 }, { a: 1, b: 1 }],
    [{ a: 1 }, { b: 1 }],
    [{ a: null }, {}],
    [{ a: { b: [1] } }, { a: { b: [2] } }],
  ])("tells %j from %j", (a, b) => {
    expect([sameJson(a, b), sameJson(b, a)]).toEqual([false, false]);
  });

  it("does not mind the order of keys", () => {
    expect(sameJson({ a: 1, b: { c: [1, null], d: "x" } }, { b: { d: "x", c: [1, null] }, a: 1 })).toBe(true);
  });

  it("finds every value the same as its copy", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        // -0 is written as 0.
        const copy = JSON.parse(JSON.stringify(value));
        expect(sameJson(copy, structuredClone(copy))).toBe(true);
      }),
    );
  });
});

describe("wellFormed", () => {
  it("replaces halves of surrogate pairs in texts and keys, however deep", () => {
    expect(wellFormed({ a: ["x\ud83d", { "\udc00": 1 }], b: "\u{1f600}" })).toEqual({
      a: ["x\ufffd", { "\ufffd": 1 }],
      b: "\u{1f600}",
    });
  });

  it("gives back the value itself when nothing is to be replaced, or it cannot be read to its end", () => {
    const whole = { a: ["x", { b: null }], at: new Date(0), bytes: new Uint8Array(1) };
    const endless: Record<string, unknown> = { text: "\ud83d" };
    endless.self = endless;
    expect([wellFormed(whole), wellFormed(endless)]).toEqual([whole, endless]);
    expect(wellFormed(whole)).toBe(whole);
  });
});
