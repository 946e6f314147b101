import fc from "fast-check";
import { expect, test } from "vitest";
import { NO_ROOM, PlainWriter, readPlain } from "../../src/wire/index.js";

function written(value: unknown, size = 65_536): Uint8Array | undefined {
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  const end = new PlainWriter(view).write(value, 0, size);
  return end < 0 ? undefined : bytes.subarray(0, end);
}

/** A key __proto__ is not written; a test below says so. */
const plain = fc.jsonValue({ maxDepth: 12 }).filter((value) => !JSON.stringify(value).includes("__proto__"));

test("plain data is read back as it was written", () => {
  fc.assert(
    fc.property(plain, (value) => {
      const bytes = written(value);
      expect(bytes && readPlain(bytes)).toEqual(value);
    }),
  );
});

test.each([
  [-0],
  [Number.NaN],
  [1e300],
  [undefined],
  ["half \ud800"],
  [2 ** 31],
  [{ ä: "ü", "€": "naïve €" }],
  [`${"long ".repeat(20)}€`],
  [`${"long ".repeat(20)}\ud800`],
  [{ [`${"k".repeat(60)}ä`]: "\u{1f600}".repeat(40) }],
  [new Date(12.5)],
  [new Date(Number.NaN)],
  [new Uint8Array([0, 255, 7])],
  [7n],
  [-(2n ** 63n)],
  [2n ** 64n - 1n],
])("%s is read back as it was written", (value) => {
  expect(readPlain(written(value) as Uint8Array)).toStrictEqual(value);
});

test("short text of characters that need one byte takes one for each, and other text two", () => {
  expect(written("ä".repeat(50))?.length).toBe(53);
  expect(written("€".repeat(50))?.length).toBe(103);
});

test("what does not fit and what no record may hold are told apart", () => {
  const writer = new PlainWriter(new DataView(new ArrayBuffer(64)));
  expect(writer.write("a".repeat(100), 0, 64)).toBe(NO_ROOM);
  expect(writer.write(new Uint8Array(100), 0, 64)).toBe(NO_ROOM);
  expect(writer.write({ map: new Map() }, 0, 64)).toBeLessThan(NO_ROOM);
  expect(writer.write({ small: 1 }, 0, 64)).toBeGreaterThan(0);
});

test.each([
  ["a map", new Map()],
  ["a bigint of more than 64 bits", 2n ** 64n],
  ["an array of another kind", new Uint16Array(3)],
  ["a function", () => undefined],
  ["a key __proto__", JSON.parse('{"__proto__": 1}')],
  ["what is nested too deep", Array.from({ length: 200 }).reduce((inner) => [inner], 1)],
])("%s is not written", (_what, value) => {
  expect(written(value)).toBeUndefined();
});

test("a value that refers to itself is not written", () => {
  const value: unknown[] = [];
  value.push(value);
  expect(written(value)).toBeUndefined();
});

test("a value that does not fit is not written, and nothing behind its place is touched", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.nat(64), (value, size) => {
      const bytes = new Uint8Array(128).fill(7);
      new PlainWriter(new DataView(bytes.buffer)).write(value, 0, size);
      expect(bytes.subarray(size).every((byte) => byte === 7)).toBe(true);
    }),
  );
});

test("bytes that nobody wrote are refused or read as something plain, and never go on for ever", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      try {
        readPlain(bytes);
      } catch (error) {
        expect(error).toBeInstanceOf(Error);
      }
    }),
  );
});
