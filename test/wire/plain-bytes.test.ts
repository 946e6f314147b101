import fc from "fast-check";
import { expect, test } from "vitest";
import { PlainWriter, readPlain } from "../../src/wire/index.js";

function written(value: unknown, size = 65_536): Uint8Array | undefined {
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  const end = new PlainWriter(view, 0, size).write(value, 0);
  return end < 0 ? undefined : bytes.subarray(0, end);
}

/** A key __proto__ is not written; a test below says so. */
const plain = fc.jsonValue({ maxDepth: 6 }).filter((value) => !JSON.stringify(value).includes("__proto__"));

test("plain data is read back as it was written", () => {
  fc.assert(
    fc.property(plain, (value) => {
      const bytes = written(value);
      expect(bytes && readPlain(bytes)).toEqual(value);
    }),
  );
});

test.each([[-0], [Number.NaN], [1e300], [undefined], ["half \ud800"], [2 ** 31], [{ ä: "ü" }]])(
  "%s is read back as it was written",
  (value) => {
    expect(readPlain(written(value) as Uint8Array)).toStrictEqual(value);
  },
);

test.each([
  ["a date", new Date(0)],
  ["bytes", new Uint8Array(3)],
  ["a map", new Map()],
  ["a bigint", 1n],
  ["a function", () => undefined],
  ["a key __proto__", JSON.parse('{"__proto__": 1}')],
  ["nine levels", [[[[[[[[[1]]]]]]]]]],
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
      new PlainWriter(new DataView(bytes.buffer), 0, size).write(value, 0);
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
