import { describe, expect, it } from "vitest";
import { plainResult } from "../../../src/tools/index.js";

describe("a tool's result", () => {
  it("is handed on as it is when it is plain", () => {
    const value = { a: [1, "x", true, null, { b: [] }] };
    expect(plainResult(value)).toBe(value);
    expect(plainResult("text")).toBe("text");
    expect(plainResult(Object.assign(Object.create(null), { a: 1 }))).toEqual({ a: 1 });
  });

  it("may be the same object in two places", () => {
    const shared = { a: 1 };
    expect(plainResult([shared, shared])).toEqual([{ a: 1 }, { a: 1 }]);
  });

  it.each([
    ["nothing", undefined, null],
    ["not a number", Number.NaN, null],
    ["a date", { at: new Date(0) }, { at: "1970-01-01T00:00:00.000Z" }],
    ["an undefined property", { a: undefined, b: 1 }, { b: 1 }],
    ["an undefined item", [1, undefined], [1, null]],
    ["a hole", Object.assign(new Array(3), { 0: 1, 2: 2 }), [1, null, 2]],
    ["an object that says how it is written", [{ toJSON: () => ({ x: 1 }) }], [{ x: 1 }]],
  ])("says %s as JSON does", (_, returned, expected) => {
    expect(plainResult(returned)).toStrictEqual(expected);
  });

  it("does not change what the tool keeps", () => {
    const kept = { a: undefined, at: new Date(0) };
    plainResult(kept);
    expect(Object.keys(kept)).toEqual(["a", "at"]);
    expect(kept.at).toBeInstanceOf(Date);
  });

  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  it.each([
    ["a function", { a: { b: [() => 1] } }, "a.b[0] is a function"],
    ["a bigint", 1n, "it is a bigint"],
    ["a symbol", [Symbol("s")], "[0] is a symbol"],
    ["a cycle", cycle, "nested deeper than 128 levels or refers to itself"],
    ["a map", { rows: new Map() }, "rows is a Map"],
    ["an error", new TypeError("x"), "it is a TypeError"],
    ["bytes", Buffer.from("x"), "it is a Buffer"],
    ["a class instance", new (class Row {})(), "it is a Row"],
    [
      "a getter that throws",
      {
        get a() {
          throw new Error("no");
        },
      },
      "reading it failed.",
    ],
  ])("is refused when it holds %s", (_, returned, why) => {
    expect(() => plainResult(returned)).toThrow(
      expect.objectContaining({ code: "tool_result_unserialisable", message: expect.stringContaining(why) }),
    );
  });
});
