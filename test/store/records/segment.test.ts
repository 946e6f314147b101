import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeSegment, segmentOutline } from "../../../src/store/records/records.js";
import { encode } from "../../../src/wire/index.js";

const messagesOf = (count: number) =>
  Array.from({ length: count }, (_, i) => ({ id: `${i}`, role: "user" as const, parts: [] }));

test("an outline is what the segment was encoded from, however long its names and lists are", () => {
  const name = fc.oneof(
    fc.string({ minLength: 1, maxLength: 40 }),
    fc.constantFrom("x".repeat(300), "日本".repeat(60)),
  );
  const count = fc.constantFrom(0, 1, 15, 16, 70_000);
  fc.assert(
    fc.property(name, fc.option(name), count, (id, parent, many) => {
      const bytes = encode({ id, parent, messages: messagesOf(many) });
      expect(segmentOutline(bytes)).toEqual({ id, parent, count: many });
    }),
    { numRuns: 60 },
  );
});

test("fields in another order are read all the same", () => {
  expect(segmentOutline(encode({ messages: messagesOf(2), parent: null, id: "a@1" }))).toEqual({
    id: "a@1",
    parent: null,
    count: 2,
  });
});

test("an outline of bytes inside a larger buffer is that of those bytes", () => {
  const bytes = encode({ id: "a@2", parent: "a@1.0", messages: messagesOf(20) });
  const larger = new Uint8Array(bytes.length + 20).fill(0x99);
  larger.set(bytes, 7);
  expect(segmentOutline(larger.subarray(7, 7 + bytes.length))).toEqual({ id: "a@2", parent: "a@1.0", count: 20 });
});

test.each<[string, Uint8Array]>([
  ["nothing", new Uint8Array()],
  ["text", new TextEncoder().encode("not a segment")],
  ["another record", encode({ id: 1, parent: null, messages: [] })],
  ["a record without messages", encode({ id: "a@1", parent: null, messages: "none" })],
  ["a record with another parent", encode({ id: "a@1", parent: 7, messages: [] })],
])("%s is no segment", (_, bytes) => {
  expect(() => segmentOutline(bytes)).toThrow(expect.objectContaining({ code: "snapshot_damaged" }));
  expect(() => decodeSegment(bytes)).toThrow(expect.objectContaining({ code: "snapshot_damaged" }));
});

test("cut anywhere, a segment is refused or its outline is still the true one", () => {
  const whole = encode({ id: "a@2", parent: "a@1.0", messages: messagesOf(20) });
  for (let length = 0; length < whole.length; length++) {
    try {
      expect(segmentOutline(whole.slice(0, length))).toEqual({ id: "a@2", parent: "a@1.0", count: 20 });
    } catch (error) {
      expect(error).toMatchObject({ code: "snapshot_damaged" });
    }
  }
});
